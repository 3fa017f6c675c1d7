"""Formats of times, in UTC because logs and nodes may be in other time zones, and of run times."""

from datetime import UTC, datetime


def format_time(moment: datetime) -> str:
    """Format a time in UTC to the second."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def format_milliseconds(moment: datetime) -> str:
    """Format a time in UTC to the millisecond."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"


def format_run_time(seconds: float) -> str:
    """Format a run time to three significant digits, and from 100 seconds on to the second.

    Below a second it is in milliseconds.
    """
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 99.95 else f"{seconds:,.0f} s"
