"""Formatting of numbers, durations and times as texts of the dashboard and of commands."""

from datetime import UTC, datetime
from typing import Final

from django.utils.formats import date_format
from django.utils.timezone import localtime

NOTHING: Final = "–"
_THOUSANDS: Final = "kMGT"
_UNITS: Final = ((86_400.0, "d", "h", 3600.0), (3600.0, "h", "min", 60.0), (60.0, "min", "s", 1.0))
_BYTES: Final = ("bytes", "kB", "MB", "GB", "TB", "PB")


def number(value: float) -> str:
    """Format a number with thousands separators, and a fraction below ten with one decimal."""
    if value and abs(value) < 10 and value != round(value):
        return f"{value:.1f}"
    return f"{value:,.0f}"


def compact(value: float) -> str:
    """Format a number in at most five characters, such as "1,234" or "12.3k", for axes."""
    if value < 9_999.5:
        return f"{value:.3g}" if value < 10 else f"{value:,.0f}"
    value /= 1000
    for unit in _THOUSANDS:
        if value < 999.5 or unit == _THOUSANDS[-1]:
            break
        value /= 1000
    return f"{value:.3g}{unit}"


def counted(count: int, *, is_least: bool) -> str:
    """Format a count, with a plus if it was cut off and the real one may be higher."""
    return f"{count:,}+" if is_least else f"{count:,}"


def duration(seconds: float | None) -> str:
    """Format seconds in their largest unit or two, such as "2 h 5 min", or "–" for None."""
    if seconds is None:
        return NOTHING
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms" if seconds < 0.9995 else "1 s"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    for least, unit, smaller, size in _UNITS:
        if seconds >= least - size / 2:
            whole, rest = divmod(round(seconds / size), round(least / size))
            return f"{whole} {unit} {rest} {smaller}" if rest else f"{whole} {unit}"
    return "1 min"


def coarse(seconds: float) -> str:
    """Format seconds in their largest unit, such as "2 h", rounded down from a minute on."""
    for least, unit, _smaller, _size in _UNITS:
        if seconds >= least:
            return f"{seconds // least:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def size(count: float) -> str:
    """Format a number of bytes in a unit of powers of 1000, such as "12.3 MB"."""
    for unit in _BYTES:
        if count < 999.5 or unit == _BYTES[-1]:
            break
        count /= 1000
    return f"{count:.3g} {unit}" if count < 999.5 else f"{count:,.0f} {unit}"


def percent(share: float) -> str:
    """Format a share of 0 to 1 in per cent. Only an exact 0 or 1 is shown as 0 % or 100 %."""
    if 0 < share < 0.0001:
        return "< 0.01 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    return f"{share * 100:.3g} %"


def clock(moment: datetime) -> str:
    """Format a time as the hour and minute in Django's time zone."""
    return date_format(localtime(moment), "H:i")


def day(moment: datetime) -> str:
    """Format a time as day and month in Django's time zone, such as "1 Mar"."""
    return date_format(localtime(moment), "j M")


def utc_day(moment: datetime) -> str:
    """Format a time as day and month in UTC, for axes with days of UTC."""
    return date_format(moment.astimezone(UTC), "j M")


def utc_date(moment: datetime) -> str:
    """Format a time as date in UTC, such as "2026-03-01"."""
    return date_format(moment.astimezone(UTC), "Y-m-d")


def timestamp(at: datetime) -> str:
    """Format a time in Django's time zone, to the second and with the name of the zone."""
    return date_format(localtime(at), "Y-m-d H:i:s T")


def minute(at: datetime) -> str:
    """Format a time in Django's time zone, to the minute."""
    return date_format(localtime(at), "Y-m-d H:i")
