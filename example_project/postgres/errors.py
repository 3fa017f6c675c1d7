class EmbeddedPostgresError(Exception):
    """The embedded server cannot be had; the message says what to do."""
