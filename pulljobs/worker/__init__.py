"""Worker processes: a supervisor, and children whose loops claim, run, renew, flush and reap."""
