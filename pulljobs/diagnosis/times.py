"""Times in UTC for diagnosis, because logs and nodes may be in other time zones."""

from datetime import UTC, datetime


def format_time(moment: datetime) -> str:
    """Return the time to the second."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def format_milliseconds(moment: datetime) -> str:
    """Return the time to the millisecond."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"
