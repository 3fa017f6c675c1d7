"""Cost of a job among consumers that have none: claim, finish, publish, and a worker."""
