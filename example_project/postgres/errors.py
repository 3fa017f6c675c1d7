class EmbeddedPostgresError(Exception):
    """Failure of the embedded server. The message says what to do."""
