"""Push delivery: a job is sent as a POST to its consumer's callback URL. The answer settles it."""
