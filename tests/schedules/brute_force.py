"""Slots of rules by brute force: a walk over every minute of UTC with the clock of a zone.

It shares no code with `pulljobs.schedules`. `python -m tests.schedules.brute_force` compares both
over every zone and every change of its offset from 2020 to 2035, in some minutes.
"""

import calendar
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from pulljobs.schedules.rules import Rule

MINUTE: Final = timedelta(minutes=1)
DAY: Final = timedelta(days=1)
FIRST, LAST = datetime(2020, 1, 1, tzinfo=UTC), datetime(2036, 1, 1, tzinfo=UTC)
BEFORE, AFTER = timedelta(hours=26), timedelta(hours=30)
CRON_RULES: Final = (
    "30 2 * * *",
    "0 0 * * *",
    "*/20 1 * * *",
    "5,35 0-3 * * *",
    "*/15 * * * *",
    "59 * * * *",
    "0 */2 * * *",
    "30 15 2 * * *",
    "*/30 */25 * * * *",
    "0 3 L * *",
    "15 1 * * SUN#1",
    "0 2 1-7 * SUN",
)
_known: dict[tuple[datetime, tuple[timedelta | None, ...]], Mapping[str, list[datetime]]] = {}


@dataclass(frozen=True)
class ParsedCron:
    """Cron rule as the sets of numbers that its fields allow, parsed without `cronsim`."""

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    has_fixed_hour: bool
    days: str
    weekdays: str

    def has_day(self, day: datetime) -> bool:
        is_day, is_weekday = self._is_day(day), self._is_weekday(day)
        if "*" in (self.days[0], self.weekdays[0]):
            return is_day and is_weekday
        return is_day or is_weekday

    def _is_day(self, day: datetime) -> bool:
        if self.days == "L":
            return day.day == calendar.monthrange(day.year, day.month)[1]
        return day.day in parse_numbers(self.days, 1, 31)

    def _is_weekday(self, day: datetime) -> bool:
        name, _hash, number = self.weekdays.partition("#")
        if name == "*":
            return True
        return f"{day:%a}".upper() == name and number in ("", str((day.day - 1) // 7 + 1))


def parse_cron(cron: str) -> ParsedCron:
    fields = cron.split() if cron.count(" ") == 5 else ["0", *cron.split()]
    second, minute, hour, days, _month, weekdays = fields
    return ParsedCron(
        parse_numbers(second, 0, 59),
        parse_numbers(minute, 0, 59),
        parse_numbers(hour, 0, 23),
        "*" not in hour,
        days,
        weekdays,
    )


def parse_numbers(field: str, low: int, high: int) -> frozenset[int]:
    numbers: set[int] = set()
    for term in field.split(","):
        values, _slash, step = term.partition("/")
        first, dash, last = values.partition("-")
        start = low if values == "*" else int(first)
        end = high if values == "*" else int(last) if dash else start
        numbers.update(range(start, end + 1, int(step or 1)))
    return frozenset(numbers)


def walk_minutes(zone: ZoneInfo, begin: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """Return every minute in [`begin`, `end`), with its naive local time."""
    minutes, instant = [], begin
    while instant < end:
        minutes.append((instant, instant.astimezone(zone).replace(tzinfo=None)))
        instant += MINUTE
    return minutes


def slots_of(cron: str, minutes: Sequence[tuple[datetime, datetime]]) -> list[datetime]:
    """Return the slots of a rule in these minutes of `walk_minutes`, ascending.

    The minutes must begin an hour before the first slot of interest, to show a change of the clock.
    """
    parsed = parse_cron(cron)
    slots: list[datetime] = []
    latest = minutes[0][1] - MINUTE
    for instant, local in minutes:
        if parsed.has_fixed_hour:
            if local > latest + MINUTE and any(_skipped(parsed, latest + MINUTE, local)):
                slots.append(instant)
            if local > latest:
                slots.extend(_in_minute(parsed, instant, local))
            latest = max(latest, local)
        else:
            slots.extend(_in_minute(parsed, instant, local))
    return sorted(set(slots))


def _skipped(parsed: ParsedCron, first: datetime, end: datetime) -> Iterator[bool]:
    """Yield for each local minute that the clock skipped, True if the rule has a slot in it."""
    while first < end:
        yield bool(_in_minute(parsed, first, first))
        first += MINUTE


def _in_minute(parsed: ParsedCron, instant: datetime, local: datetime) -> list[datetime]:
    if local.minute not in parsed.minutes or local.hour not in parsed.hours:
        return []
    if not parsed.has_day(local):
        return []
    return [instant + timedelta(seconds=second) for second in parsed.seconds]


def changes(zone: ZoneInfo) -> list[datetime]:
    """Return the minutes from 2020 to 2035 at which the offset of a zone changes, ascending."""
    minutes, day = [], FIRST
    while day < LAST:
        if offset(zone, day) != offset(zone, day + DAY):
            instant = day
            while offset(zone, instant) == offset(zone, day):
                instant += MINUTE
            minutes.append(instant)
        day += DAY
    return minutes


def offset(zone: ZoneInfo, instant: datetime) -> timedelta | None:
    return instant.astimezone(zone).utcoffset()


def differing(name: str, change: datetime) -> list[str]:
    """Return the rules whose slots around a change of a zone's offset differ from brute force."""
    begin, end = change - BEFORE, change + AFTER
    slots = expected(ZoneInfo(name), begin, end)
    return [cron for cron in CRON_RULES if slots[cron] != made(cron, name, begin, end)]


def expected(zone: ZoneInfo, begin: datetime, end: datetime) -> Mapping[str, list[datetime]]:
    """Return for each rule its slots after `begin`. Zones with equal offsets share a result."""
    start = begin - timedelta(hours=25)
    quarters = range(4 * ((end - start) // timedelta(hours=1)))
    offsets = tuple(offset(zone, start + count * 15 * MINUTE) for count in quarters)
    if (start, offsets) not in _known:
        minutes = walk_minutes(zone, start, end)
        _known[start, offsets] = {
            cron: [slot for slot in slots_of(cron, minutes) if slot > begin] for cron in CRON_RULES
        }
    return _known[start, offsets]


def made(cron: str, name: str, begin: datetime, end: datetime) -> list[datetime]:
    """Return the slots in (`begin`, `end`) by `pulljobs.schedules`, in the time zone `name`."""
    slots = Rule(cron=cron, timezone=name).slots_after(begin)
    return list(takewhile(lambda slot: slot < end, slots))


def compare_all() -> int:
    """Compare every zone and change. Print the differences and return their number."""
    compared = wrong = 0
    for name in sorted(available_timezones()):
        for change in changes(ZoneInfo(name)) or [datetime(2027, 3, 28, 1, tzinfo=UTC)]:
            compared += 1
            for cron in differing(name, change):
                wrong += 1
                print(f"{name} {change:%Y-%m-%d %H:%M}: {cron}")
    print(f"{compared:,} changes of all zones x {len(CRON_RULES)} rules: {wrong} differ.")
    return wrong


if __name__ == "__main__":
    sys.exit(bool(compare_all()))
