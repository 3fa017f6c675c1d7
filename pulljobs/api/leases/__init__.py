"""The lease protocol: pull, ack, renew, with long polls; errors are application/problem+json."""
