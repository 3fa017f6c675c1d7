"""Push delivery: a worker POSTs a job to its consumer's callback URL, and the answer settles it."""
