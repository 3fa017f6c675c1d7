"""The lease protocol: pull, ack, renew, with long polls. Errors are application/problem+json."""
