"""Checks of the parts of a rule: cron expression with its macros, time zone, times, intervals.

An error says which field of the expression is wrong and what to write instead.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import cache
from typing import Final, NamedTuple
from zoneinfo import available_timezones

from cronsim import CronSim, CronSimError

from pulljobs.errors import LONGEST_DELAY, InvalidSchedule

FIRST_YEAR: Final = 1900
LAST_YEAR: Final = 9000
LEAST_INTERVAL: Final = timedelta(seconds=1)
MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
MONTHS: Final = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS: Final = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
OFFSET: Final = re.compile("(utc|gmt)?[+-]")
MACHINE_ZONES: Final = {"localtime", "Factory"}
"""Names that the time zone database has, but that mean another zone on each machine."""
LONGEST_CRON: Final = 255
ANY_TIME: Final = datetime(2000, 1, 1)  # noqa: DTZ001  cronsim walks local times
"""Local time from which `cronsim` computes slots when only the expression is to be checked."""


class CronField(NamedTuple):
    """Field of a cron expression, such as the hour: its bounds, and the names of its values."""

    name: str
    low: int
    high: int
    names: Sequence[str] = ()
    advice: str = ""

    def number(self, text: str) -> int | None:
        """Return the number in a text such as "5" or "FRI", or None for other text."""
        if text in self.names:
            return self.names.index(text) + self.low
        return int(text) if text.isascii() and text.isdigit() else None


FIELDS: Final = (
    CronField("second", 0, 59, advice="0 is the full minute"),
    CronField("minute", 0, 59, advice="0 is the full hour"),
    CronField("hour", 0, 23, advice="0 is midnight"),
    CronField("day of month", 1, 31, advice="L is the last day, LW the last weekday"),
    CronField("month", 1, 12, MONTHS),
    CronField("day of week", 0, 7, WEEKDAYS, "0 and 7 are Sunday, 5L is the last Friday"),
)


def expand_macro(cron: str) -> str:
    """Return the expression for a macro such as `@daily`, and any other text unchanged."""
    return MACROS.get(cron.strip().lower(), cron)


def check_cron(cron: str) -> None:
    """Raise InvalidSchedule for a cron expression that can't be parsed or never has a slot."""
    if not isinstance(cron, str) or len(cron) > LONGEST_CRON:
        raise InvalidSchedule("cron", f"cron must be text of up to {LONGEST_CRON} characters.")
    _check_macro(cron.strip())
    terms = expand_macro(cron).upper().split()
    _check_count(cron, len(terms))
    for position, (field, text) in enumerate(zip(FIELDS[-len(terms) :], terms, strict=True), 1):
        _check_field(cron, position, field, text)
    try:
        CronSim(" ".join(terms), ANY_TIME)
    except CronSimError as error:
        raise InvalidSchedule(
            "cron",
            f"cron {cron!r}: no month in field {len(terms) - 1} has the day of field "
            f"{len(terms) - 2}: choose an earlier day, or L for the last one.",
        ) from error


def _check_macro(cron: str) -> None:
    if cron.startswith("@") and cron.lower() not in MACROS:
        nearest = get_close_matches(cron.lower(), MACROS, 1, 0)[0]
        raise InvalidSchedule(
            "cron", f"cron {cron!r} is none of {', '.join(MACROS)}: did you mean {nearest!r}?"
        )


def _check_count(cron: str, count: int) -> None:
    if count not in (5, 6):
        names = ", ".join(field.name for field in FIELDS[1:])
        more = " A year is not supported: use starts_at and ends_at." if count == 7 else ""
        raise InvalidSchedule(
            "cron",
            f"cron {cron!r} has {count} field{'s' * (count != 1)}: write 5 ({names}), or 6 with "
            f"the second before them.{more}",
        )


def _check_field(cron: str, position: int, field: CronField, text: str) -> None:
    for term in text.split(","):
        if not _is_valid(field, term):
            raise InvalidSchedule(
                "cron",
                f"cron {cron!r}, field {position} ({field.name}): {term!r} can't be used: "
                f"{_suggest(field, term)}.",
            )


def _is_valid(field: CronField, term: str) -> bool:
    base, slash, step = term.partition("/")
    if not term or (step.isdecimal() and int(step) > field.high):
        return False  # The parser does not see an empty term, and takes a step of any length.
    if slash and "-" in base and len(set(map(field.number, base.split("-")))) == 1:
        return False  # The parser takes 13-13/3 as 13/3, but describes it as 13.
    fields = [term if each is field else "*" for each in FIELDS]
    try:
        CronSim(" ".join(fields), ANY_TIME)
    except CronSimError:
        return False
    return True


def _suggest(field: CronField, term: str) -> str:
    """Return advice for a cron term that can't be parsed, such as "5-3" in the field "1,5-3"."""
    if "?" in term:
        return "write * for any value"
    if term.endswith("W") and field.name == "day of month":
        return "only LW, the last weekday, is supported"
    base, slash, step = term.partition("/")
    if slash and not (step.isdecimal() and 1 <= int(step) <= field.high):
        return f"write a step from 1 to {field.high}, such as {base or '*'}/2, or use every"
    return _suggest_range(field, base) or _suggest_value(field, base)


def _suggest_range(field: CronField, term: str) -> str:
    """Return advice for a range such as FRI-MON or 5-5, or "" for any other term."""
    first, dash, last = term.partition("-")
    low, high = field.number(first), field.number(last)
    if not dash or low is None or high is None or low < high:
        return ""
    if low == high:
        return f"a step needs a range of two values, so write {first}"
    end, begin = (field.names[-1], field.names[0]) if field.names else (field.high, field.low)
    if field.names and first.isdigit():
        end, begin = field.low + len(field.names) - 1, field.low
    head = "" if first == "7" and end == 6 else f"{first}-{end},"  # 7 is Sunday, as 0 is.
    return f"a range goes upwards, so write {head}{begin}-{last}"


def _suggest_value(field: CronField, term: str) -> str:
    allowed = f"write {field.low} to {field.high}"
    if field.names:
        allowed += f" or {field.names[0]} to {field.names[-1]}"
    if field.advice:
        allowed += f" ({field.advice})"
    texts = [text for text in term.split("-") if not text.isdigit()]
    nearest = [name for text in texts for name in get_close_matches(text[:3], field.names, 1, 0.6)]
    return f"{allowed}, such as {nearest[0]!r}" if nearest else allowed


def check_zone(name: str) -> None:
    """Raise InvalidSchedule, with the nearest name, unless `name` is an IANA time zone."""
    zones = _zones()
    if isinstance(name, str) and name in zones.values():
        return
    text = str(name).strip().replace(" ", "_").lower()
    ends = sorted((zone for zone in zones if zone.rpartition("/")[2] == text), key=len)
    nearest = ends[:1] or get_close_matches(text, zones, 1, 0.6)
    hint = "write an IANA name, such as 'Europe/Berlin'."
    if nearest and not OFFSET.match(text):  # The sign of Etc/GMT+2 is reversed: it is UTC-2.
        hint = f"did you mean {zones[nearest[0]]!r}?"
    raise InvalidSchedule("timezone", f"There is no time zone {name!r}: {hint}")


@cache
def _zones() -> dict[str, str]:
    """Return the names of all time zones, by the names in lower case."""
    zones = available_timezones() - MACHINE_ZONES
    return {name.lower(): name for name in sorted(zones)}


def check_aware(field: str, moment: datetime | None) -> None:
    """Raise InvalidSchedule for a naive time, or a year before 1900 or after 9000."""
    if moment is not None and (not isinstance(moment, datetime) or moment.utcoffset() is None):
        raise InvalidSchedule(
            field, f"{field} must be an aware datetime, not {moment!r}: give it a time zone."
        )
    if moment is not None and not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise InvalidSchedule(
            field, f"{field} is {moment}: choose a year from {FIRST_YEAR} to {LAST_YEAR}."
        )


def check_interval(field: str, interval: timedelta, *, least: timedelta) -> None:
    """Raise InvalidSchedule unless `interval` is a timedelta from `least` to 100 years."""
    if not isinstance(interval, timedelta):
        raise InvalidSchedule(field, f"{field} must be a timedelta, not {interval!r}.")
    if not least <= interval <= LONGEST_DELAY:
        raise InvalidSchedule(
            field,
            f"{field} is {interval}: choose at least {least.total_seconds():g} s and at most 100 "
            "years.",
        )
