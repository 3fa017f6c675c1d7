"""Apps with a workflow before and after a deploy, for worker processes."""

CHANNEL = "deployed"
OLDEST = "OLDEST_VERSION"
"""Variable with the oldest version of runs that the new code accepts."""
