"""Times as whoever looks for a cause is told them: logs and nodes may be of other zones."""

from datetime import UTC, datetime


def told(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def exact(moment: datetime) -> str:
    """To the millisecond."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"
