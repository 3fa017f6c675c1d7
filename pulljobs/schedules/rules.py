"""Rules of schedules, which compute the times of slots. No database is used here.

Daylight saving, for rules of cron:

    hour field                 local time that does not exist    local time that exists twice
    a fixed hour (2, 0-5)      fires once, at the change         fires once, the first time
    begins with * (*, */2)     does not fire                     fires in both hours

The package `cronsim` parses a rule and yields naive local times. This module converts them to UTC,
because `cronsim` follows Debian's cron, which treats daylight saving so for some fields only.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property
from hashlib import blake2s
from itertools import pairwise, takewhile
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim

from pulljobs.errors import InvalidSchedule
from pulljobs.schedules.rule_checks import (
    ANY_TIME,
    LEAST_INTERVAL,
    check_aware,
    check_cron,
    check_interval,
    check_zone,
    expand_macro,
)

SECOND: Final = timedelta(seconds=1)
DAY: Final = timedelta(days=1)
EVERY_SECOND: Final = re.compile("(every) second(?= (second|minute|hour|day|month))", re.IGNORECASE)
"""Words of `cronsim` for a step of 2, which are misread before a unit: "every second second"."""
ORDINAL: Final = re.compile("(?<=[2-5])([123])th")
"""Ordinals of `cronsim` such as "31th"."""
SUFFIXES: Final = {"1": "st", "2": "nd", "3": "rd"}
COMPARED: Final = 100
"""Number of slots among which the check of the jitter looks for the shortest interval."""
NEVER: Final = datetime(9500, 1, 1, tzinfo=UTC)
"""Time after which there are no slots, so that adding an interval stays below the year 10000."""


@dataclass(frozen=True)
class Rule:
    """Rule of a schedule, with either `cron` or `every`. `make_rule` makes one that is checked."""

    cron: str = ""
    every: timedelta | None = None
    """Interval in real time between slots. The first slot is at `starts_at`."""
    timezone: str = "UTC"
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    """Time of the last possible slot, inclusive."""
    jitter: timedelta = timedelta()

    def slots_after(self, after: datetime) -> Iterator[datetime]:
        """Yield the slots later than the aware time `after`, ascending, in UTC, without jitter."""
        after = after.astimezone(UTC)
        if self.starts_at is not None:
            after = max(after, self.starts_at.astimezone(UTC) - timedelta(microseconds=1))
        slots = self._intervals_after(after) if self.every else self._cron_after(after)
        last = NEVER if self.ends_at is None else self.ends_at
        return takewhile(lambda slot: slot <= last, slots)

    def next_slot(self, after: datetime) -> datetime | None:
        """Return the first slot later than the aware time `after`, or None if no slot follows."""
        return next(self.slots_after(after), None)

    def fires_at(self, slot: datetime, seed: str) -> datetime:
        """Return the time at which a slot fires: the slot, plus a delay below the jitter.

        The delay is a hash of the slot and of `seed`, the schedule's name, so that all workers
        agree and schedules with the same rule spread.
        """
        if not self.jitter:
            return slot
        digest = blake2s(f"{seed} {format_slot(slot)}".encode(), digest_size=8).digest()
        return slot + self.jitter * (int.from_bytes(digest) / 2**64)

    def describe(self) -> str:
        """Return the rule in English words, such as "Every 5 minutes"."""
        if self.every is not None:
            return f"Every {_describe_interval(self.every)}"
        *others, weekdays = self._expression.split()
        # Sunday is 0 and 7, and `cronsim` would name it twice.
        days = dict.fromkeys("0" if day == "7" else day for day in weekdays.split(","))
        words = CronSim(" ".join([*others, ",".join(days)]), ANY_TIME).explain()
        words = EVERY_SECOND.sub(r"\1 other", words)
        words = ORDINAL.sub(lambda match: match[1] + SUFFIXES[match[1]], words)
        return f"{words} ({self.timezone})"

    @cached_property
    def zone(self) -> ZoneInfo:
        """Time zone of the rule. InvalidSchedule is raised if this machine does not know it."""
        try:
            return ZoneInfo(self.timezone)
        except (KeyError, ValueError, OSError) as error:
            raise InvalidSchedule(
                "timezone",
                f"This machine does not know the time zone {self.timezone!r}: update its time "
                "zones (the package tzdata), or choose another zone.",
            ) from error

    @cached_property
    def problem(self) -> str:
        """Error text if this machine lacks the time zone that the rule needs, else empty."""
        if self.every is None:  # An interval needs no zone.
            try:
                _ = self.zone
            except InvalidSchedule as error:
                return str(error)
        return ""

    @cached_property
    def shown_zone(self) -> tzinfo:
        """Time zone in which times are shown: the zone of the rule, or UTC if it is unknown."""
        try:
            return self.zone
        except InvalidSchedule:
            return UTC

    @cached_property
    def _expression(self) -> str:
        return expand_macro(self.cron)

    @cached_property
    def _has_fixed_hour(self) -> bool:
        return not self._expression.split()[-4].startswith("*")

    def _intervals_after(self, after: datetime) -> Iterator[datetime]:
        assert self.every is not None
        assert self.starts_at is not None
        start = self.starts_at.astimezone(UTC)
        count = max((after - start) // self.every + 1, 0)
        while True:
            yield start + count * self.every
            count += 1

    def _cron_after(self, after: datetime) -> Iterator[datetime]:
        if self._has_fixed_hour:
            return self._once_a_local_time(after)
        return self._in_every_real_hour(after)

    def _local_times(self, after: datetime, offset: timedelta) -> Iterator[datetime]:
        """Yield naive local times that match the rule, later than `after` at this UTC offset."""
        return CronSim(self._expression, after.replace(tzinfo=None) + offset)

    def _once_a_local_time(self, after: datetime) -> Iterator[datetime]:
        """Yield slots of a rule with a fixed hour: one for each local time that matches.

        A local time that exists twice gives its first instant, and one that does not exist gives
        the instant of the clock's change.
        """
        last = after
        for local in self._local_times(after, offset_at(self.zone, after)):
            slot = _first_instant(self.zone, local)
            if slot > last:
                yield slot
                last = slot

    def _in_every_real_hour(self, after: datetime) -> Iterator[datetime]:
        """Yield slots of a rule whose hour begins with `*`: all instants whose local time matches.

        A local time that exists twice gives two slots, and one that does not exist gives none.
        """
        while True:
            begin = after.replace(microsecond=0) + SECOND
            offset = offset_at(self.zone, begin)
            for local in self._local_times(begin - SECOND, offset):
                slot = local.replace(tzinfo=UTC) - offset
                change = next_change(self.zone, begin, slot)
                if change is not None:
                    after = change - SECOND
                    break
                yield slot
                begin = slot
            else:
                return


def make_rule(
    *,
    cron: str | None = "",
    every: timedelta | None = None,
    timezone: str = "UTC",
    starts_at: datetime | None = None,
    ends_at: datetime | None = None,
    jitter: timedelta | None = None,
    now: datetime,
) -> Rule:
    """Check the arguments and return the rule, which has a slot after `now`.

    Raise InvalidSchedule, whose text says what to write instead.

    An interval without `starts_at` begins at `now`.
    """
    cron = cron or ""
    if bool(cron) == (every is not None):
        raise InvalidSchedule("cron", "Give a rule: either cron or every, not both.")
    check_zone(timezone)
    check_aware("starts_at", starts_at)
    check_aware("ends_at", ends_at)
    if every is not None:
        check_interval("every", every, least=LEAST_INTERVAL)
        starts_at = starts_at or now.replace(microsecond=0)
    else:
        check_cron(cron)
    if jitter is not None:
        check_interval("jitter", jitter, least=timedelta())
    rule = Rule(" ".join(cron.split()), every, timezone, starts_at, ends_at, jitter or timedelta())
    _check_future(rule, now)
    return rule


def _check_future(rule: Rule, now: datetime) -> None:
    slots = [slot for slot, _ in zip(rule.slots_after(now), range(COMPARED), strict=False)]
    if not slots:
        is_bounded = rule.ends_at is not None
        name, advice = (
            ("ends_at", "Choose a later end") if is_bounded else ("cron", "Check the days")
        )
        raise InvalidSchedule(
            name, f"The rule has no slot after {now:%Y-%m-%d %H:%M} UTC. {advice}."
        )
    shortest = min((after - before for before, after in pairwise(slots)), default=rule.jitter)
    if rule.jitter > shortest:
        raise InvalidSchedule(
            "jitter",
            f"jitter is {rule.jitter}, but two slots are only {shortest} apart: a slot would fire "
            f"after the next one. Choose {shortest} or less.",
        )


def format_slot(slot: datetime) -> str:
    """Return a slot as ISO 8601 text in UTC, such as `2027-01-31T06:00:00Z`."""
    return slot.astimezone(UTC).isoformat().replace("+00:00", "Z")


def offset_at(zone: tzinfo, instant: datetime) -> timedelta:
    """Return the offset of a zone from UTC at an instant."""
    return instant.astimezone(zone).utcoffset() or timedelta()


def next_change(zone: tzinfo, begin: datetime, end: datetime) -> datetime | None:
    """Return the first change of the zone's UTC offset in (`begin`, `end`], or None."""
    offset, low = offset_at(zone, begin), begin
    while low < end:
        high = min(low + DAY, end)
        if offset_at(zone, high) != offset:
            return _bisect(zone, low, high)
        low = high
    return None


def _bisect(zone: tzinfo, low: datetime, high: datetime) -> datetime:
    """Return the instant in (`low`, `high`] at which the UTC offset changes, to the second."""
    offset = offset_at(zone, low)
    while high - low > SECOND:
        middle = low + (high - low) // (2 * SECOND) * SECOND
        if offset_at(zone, middle) == offset:
            low = middle
        else:
            high = middle
    return high


def _first_instant(zone: tzinfo, local: datetime) -> datetime:
    """Return the first instant with this naive local time.

    If the clock skips the local time, return the instant at which it does.
    """
    instant = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == local:
        return instant
    before = local.replace(tzinfo=zone, fold=1).astimezone(UTC)  # In a gap, the new offset.
    return _bisect(zone, before, instant)


def _describe_interval(interval: timedelta) -> str:
    parts = []
    rest = interval
    for name, unit in (("day", DAY), ("hour", 3600 * SECOND), ("minute", 60 * SECOND)):
        count, rest = divmod(rest, unit)
        if count:
            parts.append(f"{count} {name}{'s' * (count > 1)}")
    if rest:
        parts.append(f"{rest.total_seconds():g} second{'s' * (rest != SECOND)}")
    return parts[0].removeprefix("1 ") if len(parts) == 1 else " and ".join(parts)
