"""Push delivery: a job is sent as a POST to its consumer's callback URL; the answer settles it."""
