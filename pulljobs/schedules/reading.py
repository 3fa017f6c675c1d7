"""Reading of schedules for people and programs: state, upcoming slots, history, slot of a job."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Any, Final, NamedTuple, Protocol

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.engine.validation import encodable
from pulljobs.errors import UnknownSchedule
from pulljobs.schedules.firing import SLOT_HEADER
from pulljobs.schedules.models import Schedule, Slot
from pulljobs.schedules.rules import Rule, format_slot, offset_at

SHOWN_SLOTS: Final = 10
"""Next slots of a schedule that pages, commands and answers show."""


class HasHeaders(Protocol):
    """Job that a handler gets, or a message."""

    @property
    def headers(self) -> Mapping[str, str]: ...


class UpcomingSlot(NamedTuple):
    """Slot to come, as text."""

    utc: str
    local: str
    """Time in the zone of the rule."""
    change: str
    """Change of the zone's clock since the slot before, such as `+01:00`, or empty."""


def slot_of(job: HasHeaders) -> datetime | None:
    """Return the slot for which a job was published, aware and in UTC, or None for other jobs.

    Any publisher may send the header, so a text that is no slot counts as none.
    """
    try:
        slot = datetime.fromisoformat(job.headers.get(SLOT_HEADER, ""))
    except ValueError:
        return None
    return None if slot.utcoffset() is None else slot.astimezone(UTC)


def find(name: str) -> Schedule:
    """Return the schedule of that name, or raise UnknownSchedule."""
    rows = Schedule.objects.using(settings().DATABASE).select_related("producer")
    row = rows.filter(name=name).first() if is_name(name) else None
    if row is None:
        raise UnknownSchedule(name)
    return row


def is_name(name: object) -> bool:
    """Return True for a text that the database can look up."""
    return isinstance(name, str) and encodable(name)


def summarize(row: Schedule, now: datetime) -> dict[str, Any]:
    """Return the rule, the policies and the state of a schedule, with times as text."""
    return {
        "name": row.name,
        "channel": row.channel_name,
        "rule": row.rule.describe(),
        "cron": row.cron,
        "every_seconds": row.every and row.every.total_seconds(),
        "timezone": row.timezone,
        "starts_at": _text(row.starts_at),
        "ends_at": _text(row.ends_at),
        "jitter_seconds": row.jitter.total_seconds(),
        "missed": row.missed,
        "missed_bound": row.missed_bound,
        "misfire_grace_seconds": row.misfire_grace and row.misfire_grace.total_seconds(),
        "overlap": row.overlap,
        "state": state_of(row, now),
        "paused_until": _text(row.paused_until) if row.is_paused(now) else None,
        "next_slot": _text(row.next_slot),
        "last_slot": _text(row.last_slot),
        "last_reason": row.last_reason,
        "last_late_seconds": row.last_late_seconds,
        "error": row.error or row.rule.problem,
    }


def state_of(row: Schedule, now: datetime) -> str:
    """Return `paused`, `refused` (its last publish), `ended` or `active`."""
    if row.is_paused(now):
        return "paused"
    if row.failures:
        return "refused"
    return "ended" if row.next_slot is None else "active"


def upcoming(row: Schedule, count: int = SHOWN_SLOTS) -> list[UpcomingSlot]:
    """Return the next slots of a schedule, or none if this machine can't find them."""
    if row.next_slot is None or row.rule.problem:
        return []
    slots = chain([row.next_slot], row.rule.slots_after(row.next_slot))
    return list(format_slots(row.rule, row.next_slot, islice(slots, count)))


def format_slots(rule: Rule, since: datetime, slots: Iterable[datetime]) -> Iterator[UpcomingSlot]:
    """Yield slots as text. `since` is the time before them, for the mark of a changed clock."""
    zone = rule.shown_zone
    offset = offset_at(zone, since)
    for slot in slots:
        before, offset = offset, offset_at(zone, slot)
        local = slot.astimezone(zone)
        yield UpcomingSlot(
            format_slot(slot), local.isoformat(sep=" "), _format_change(offset - before)
        )


def history(row: Schedule, count: int) -> list[Slot]:
    """Return the newest records of a schedule, the newest first."""
    rows = Slot.objects.using(settings().DATABASE).filter(schedule_id=row.pk)
    return list(rows.order_by("-slot_at")[:count])


def describe_slot(slot: Slot) -> dict[str, Any]:
    """Return a record with times and ids as text."""
    return {
        "slot": format_slot(slot.slot_at),
        "reason": slot.reason,
        "late_seconds": slot.late_seconds,
        "message": None if slot.message_id is None else ids.encode(slot.message_id),
        "error": slot.error,
    }


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else format_slot(moment.astimezone(UTC))


def _format_change(change: timedelta) -> str:
    if not change:
        return ""
    minutes = abs(change) // timedelta(minutes=1)
    sign = "+" if change > timedelta() else "-"
    return f"clock changes by {sign}{minutes // 60:02}:{minutes % 60:02}"
