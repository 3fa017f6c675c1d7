class EmbeddedPostgresError(Exception):
    """Failure of the embedded server, with a message that says what to do."""
