class EmbeddedPostgresError(Exception):
    """Failure of the embedded server; the message says what to do."""
