"""Proof that each slot has exactly one record, and each slot that fired its message.

The check only reads. It may run next to the workers: it reads a schedule before its records, and
looks only at slots before the next one of that reading.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Final

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
"""Records and messages so close to the end of the retention are not looked at."""
INVARIANTS: Final = {
    "slot_is_recorded": "Each slot of a schedule before its next one has a record.",
    "slot_is_recorded_once": "No slot has two records.",
    "slot_is_planned": "Each record that no user asked for is of a slot of the rule.",
    "fired_slot_has_its_message": "The message of a slot that fired is there.",
    "slot_is_published_once": "No slot has two messages.",
}
BY_HAND: Final = (SlotReason.NOW, SlotReason.BACKFILL)


@dataclass
class VerifiedSlots:
    """Result of a check. `broken` has the slots that break an invariant, as text, by its name."""

    schedules: int = 0
    slots: int = 0
    broken: dict[str, list[str]] = field(default_factory=dict)

    def add(self, invariant: str, row: Schedule, slots: Iterable[str]) -> None:
        """Note slots that break an invariant."""
        if named := [f"{row.name} {slot}" for slot in slots]:
            self.broken.setdefault(invariant, []).extend(named)


def verify(since: datetime | None = None, until: datetime | None = None) -> VerifiedSlots:
    """Check the slots of all schedules between two aware times, by default those of a day.

    A rule is checked from its last change on, as far as history reaches back.
    """
    using = settings().DATABASE
    now = nodes.clock(using).astimezone(UTC)
    begin = now - timedelta(days=1) if since is None else since
    if (retention := settings().RETENTION) is not None:
        begin = max(begin, now - retention + CLOCKS)
    result = VerifiedSlots()
    for row in _rows(using):
        _verify(using, row, begin, now if until is None else min(until, now), result)
    return result


def verify_part() -> VerifiedPart:
    """Check the slots of the last day, for `manage.py pulljobs verify`."""
    result = verify()
    return VerifiedPart(result.slots, result.broken, INVARIANTS)


def _rows(using: str) -> Iterator[Schedule]:
    last = 0
    rows = Schedule.objects.using(using).defer("payload", "headers").order_by("pk")
    while page := list(rows.filter(pk__gt=last)[:PAGE]):
        yield from page
        last = page[-1].pk


def _verify(
    using: str, row: Schedule, since: datetime, until: datetime, result: VerifiedSlots
) -> None:
    begin = max(since, row.rule_since)
    end = until if row.next_slot is None else min(until, row.next_slot)
    if begin >= end:
        return
    expected = list(takewhile(lambda slot: slot < end, row.rule.slots_after(begin)))
    params = {"schedule_id": row.pk, "begin": begin, "until": end}
    records = run(using, "slots_of_schedule", params)
    result.schedules += 1
    result.slots += len(expected)
    result.add("slot_is_published_once", row, _doubled(using, row, begin, end))
    for invariant, slots in _broken(expected, records).items():
        result.add(invariant, row, map(format_slot, sorted(slots)))


def _broken(
    expected: Sequence[datetime], records: Sequence[Row]
) -> dict[str, Collection[datetime]]:
    """Return the slots that break each invariant. `records` are rows of slots_of_schedule.sql."""
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


def _doubled(using: str, row: Schedule, begin: datetime, end: datetime) -> list[str]:
    """Return the slots with two messages among those that were published in the window."""
    params = {
        "schedule": row.name,
        "channel": row.channel_name,
        "first": ids.first_of(begin),
        "begin": format_slot(begin),
        "until": format_slot(end),
    }
    return [doubled.slot for doubled in run(using, "doubled_slots", params)]
