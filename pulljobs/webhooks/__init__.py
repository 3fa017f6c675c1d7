"""Push delivery: a job becomes a POST to its consumer's callback URL, the answer its outcome."""
