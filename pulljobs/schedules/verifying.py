"""Check that each slot of a schedule has exactly one record, and each fired slot its message.

The check only reads. It may run while workers fire: it reads a schedule before its records, and
checks only slots before the `next_slot` that it read.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Final, NamedTuple

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.engine.sql import Row
from pulljobs.hooks import VerifiedPart
from pulljobs.schedules.models import Schedule, SlotReason
from pulljobs.schedules.rules import format_slot
from pulljobs.storage import nodes
from pulljobs.storage.statements import run

PAGE: Final = 1_000
CLOCKS: Final = timedelta(hours=1)
"""Slots that are this close to the end of the retention are not checked."""
INVARIANTS: Final = {
    "rule_can_be_evaluated": "The time zone of each schedule is known on this machine.",
    "slot_is_recorded": "Each slot of a schedule before its next one has a record.",
    "slot_is_recorded_once": "No slot has two records.",
    "slot_is_planned": "Each record that no user asked for is of a slot of the rule.",
    "fired_slot_has_its_message": "The message of a slot that fired is there.",
    "slot_is_published_once": "No slot has two messages.",
}
BY_HAND: Final = (SlotReason.NOW, SlotReason.BACKFILL)


@dataclass
class VerifiedSlots:
    """Result of a check: numbers of checked schedules and slots, and slots that break invariants.

    `broken` has these slots by invariant, as texts such as "report 2027-01-31T06:00:00Z".
    """

    schedules: int = 0
    slots: int = 0
    broken: dict[str, list[str]] = field(default_factory=dict)

    def add(self, invariant: str, schedule: str, slots: Iterable[str]) -> None:
        """Add slots of a schedule, as text, that break an invariant."""
        if named := [f"{schedule} {slot}" for slot in slots]:
            self.broken.setdefault(invariant, []).extend(named)


class SlotWindow(NamedTuple):
    """Times between which the slots of a schedule are checked, both exclusive."""

    begin: datetime
    end: datetime

    def has(self, slot: str) -> bool:
        """Return True if a slot, the text of a message's header, is inside the window.

        The text is not parsed, because other publishers may send the header with any text.
        """
        return format_slot(self.begin) < slot < format_slot(self.end)


def verify(since: datetime | None = None, until: datetime | None = None) -> VerifiedSlots:
    """Check the slots of all schedules between two aware times, by default of the last 24 hours.

    Slots before the last change of a schedule's rule, or older than the retention, are left out.
    """
    using = settings().DATABASE
    now = nodes.clock(using).astimezone(UTC)
    begin = now - timedelta(days=1) if since is None else since
    if (retention := settings().RETENTION) is not None:
        begin = max(begin, now - retention + CLOCKS)
    end = now if until is None else min(until, now)
    result = VerifiedSlots()
    windows: defaultdict[str, dict[str, SlotWindow]] = defaultdict(dict)
    for row in _rows(using):
        window = _window_of(row, begin, end)
        if row.rule.problem:
            result.add("rule_can_be_evaluated", row.name, [row.timezone])
        elif window.begin < window.end:
            _verify(using, row, window, result)
            windows[row.channel_name][row.name] = window
    for channel, schedules in windows.items():
        _verify_messages(using, channel, schedules, result)
    return result


def verify_part() -> VerifiedPart:
    """Check the slots of the last 24 hours, as a part of `manage.py pulljobs verify`."""
    result = verify()
    return VerifiedPart(result.slots, result.broken, INVARIANTS)


def _rows(using: str) -> Iterator[Schedule]:
    last = 0
    rows = Schedule.objects.using(using).defer("payload", "headers").order_by("pk")
    while page := list(rows.filter(pk__gt=last)[:PAGE]):
        yield from page
        last = page[-1].pk


def _window_of(row: Schedule, since: datetime, until: datetime) -> SlotWindow:
    end = until if row.next_slot is None else min(until, row.next_slot)
    return SlotWindow(max(since, row.rule_since), end)


def _verify(using: str, row: Schedule, window: SlotWindow, result: VerifiedSlots) -> None:
    slots_after = row.rule.slots_after(window.begin)
    expected = list(takewhile(lambda slot: slot < window.end, slots_after))
    params = {"schedule_id": row.pk, "begin": window.begin, "until": window.end}
    records = run(using, "slots_of_schedule", params)
    result.schedules += 1
    result.slots += len(expected)
    for invariant, slots in _broken(expected, records).items():
        result.add(invariant, row.name, map(format_slot, sorted(slots)))


def _broken(
    expected: Sequence[datetime], records: Sequence[Row]
) -> dict[str, Collection[datetime]]:
    """Return the slots of a schedule that break each invariant on records, by its name.

    `expected` are the slots of the rule, and `records` the rows of slots_of_schedule.sql.
    """
    counts = Counter(record.slot_at for record in records)
    planned = {record.slot_at for record in records if record.reason not in BY_HAND}
    return {
        "slot_is_recorded": set(expected) - counts.keys(),
        "slot_is_recorded_once": [slot for slot, count in counts.items() if count > 1],
        "slot_is_planned": planned - set(expected),
        "fired_slot_has_its_message": {
            record.slot_at for record in records if record.lacks_message
        },
    }


def _verify_messages(
    using: str, channel: str, schedules: Mapping[str, SlotWindow], result: VerifiedSlots
) -> None:
    """Add to `result` the slots with several messages, of all `schedules` of a channel at once."""
    first = ids.first_of(min(window.begin for window in schedules.values()))
    for doubled in run(using, "doubled_slots", {"channel": channel, "first": first}):
        window = schedules.get(doubled.schedule)
        if window is not None and window.has(doubled.slot):
            result.add("slot_is_published_once", doubled.schedule, [doubled.slot])
