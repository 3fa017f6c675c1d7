"""Formatting of figures for people."""

from datetime import UTC, datetime
from typing import Final

from django.utils.formats import date_format
from django.utils.timezone import localtime

NOTHING: Final = "–"
_THOUSANDS: Final = "kMGT"
_UNITS: Final = ((86_400.0, "d", "h", 3600.0), (3600.0, "h", "min", 60.0), (60.0, "min", "s", 1.0))
_BYTES: Final = ("bytes", "kB", "MB", "GB", "TB", "PB")


def number(value: float) -> str:
    """Format a number: whole, or with a decimal if it is below ten."""
    if value and abs(value) < 10 and value != round(value):
        return f"{value:.1f}"
    return f"{value:,.0f}"


def compact(value: float) -> str:
    """Format a number in three or four characters, for axes."""
    if value < 9_999.5:
        return f"{value:.3g}" if value < 10 else f"{value:,.0f}"
    value /= 1000
    for unit in _THOUSANDS:
        if value < 999.5 or unit == _THOUSANDS[-1]:
            break
        value /= 1000
    return f"{value:.3g}{unit}"


def counted(count: int, *, is_least: bool) -> str:
    """Format a count, with a plus if there may be more."""
    return f"{count:,}+" if is_least else f"{count:,}"


def duration(seconds: float | None) -> str:
    """Format seconds in the two largest units."""
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
    """Format seconds in the largest unit alone."""
    for least, unit, _smaller, _size in _UNITS:
        if seconds >= least:
            return f"{seconds // least:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def size(count: float) -> str:
    """Format bytes."""
    for unit in _BYTES:
        if count < 999.5 or unit == _BYTES[-1]:
            break
        count /= 1000
    return f"{count:.3g} {unit}" if count < 999.5 else f"{count:,.0f} {unit}"


def percent(share: float) -> str:
    """Format a share with three digits. Only an exact 0 or 1 is shown as 0 % or 100 %."""
    if 0 < share < 0.0001:
        return "< 0.01 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    return f"{share * 100:.3g} %"


def clock(moment: datetime) -> str:
    """Format the local time of day."""
    return date_format(localtime(moment), "H:i")


def day(moment: datetime) -> str:
    """Format the local day."""
    return date_format(localtime(moment), "j M")


def utc_day(moment: datetime) -> str:
    """Format the day in UTC, for steps that are days of UTC."""
    return date_format(moment.astimezone(UTC), "j M")


def utc_date(moment: datetime) -> str:
    """Format the date in UTC."""
    return date_format(moment.astimezone(UTC), "Y-m-d")


def timestamp(at: datetime) -> str:
    """Format a local time with its zone. Commands use UTC instead."""
    return date_format(localtime(at), "Y-m-d H:i:s T")


def minute(at: datetime) -> str:
    """Format a local time to the minute."""
    return date_format(localtime(at), "Y-m-d H:i")
