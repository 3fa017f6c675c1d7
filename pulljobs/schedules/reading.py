"""Queries on schedules: state, upcoming slots, history, and the slot for which a job runs."""

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
"""Number of next slots of a schedule that pages, commands and HTTP answers show."""


class HasHeaders(Protocol):
    """Anything with the headers of a message, such as the job that a handler gets."""

    @property
    def headers(self) -> Mapping[str, str]: ...


class UpcomingSlot(NamedTuple):
    """Future slot as text, for pages, commands and HTTP answers."""

    utc: str
    local: str
    """Time in the zone of the rule."""
    change: str
    """Text such as "clock changes by +01:00" if the zone's clock changed since the slot before."""


def slot_of(job: HasHeaders) -> datetime | None:
    """Return the slot for which a schedule published a job, aware and in UTC, or None for others.

    It is read from a header. Another publisher may send any text there: if it is no aware time,
    the result is None.
    """
    try:
        slot = datetime.fromisoformat(job.headers.get(SLOT_HEADER, ""))
    except ValueError:
        return None
    return None if slot.utcoffset() is None else slot.astimezone(UTC)


def find(name: str) -> Schedule:
    """Return the schedule of this name with its producer, or raise UnknownSchedule."""
    rows = Schedule.objects.using(settings().DATABASE).select_related("producer")
    row = rows.filter(name=name).first() if is_name(name) else None
    if row is None:
        raise UnknownSchedule(name)
    return row


def is_name(name: object) -> bool:
    """Return True if PostgreSQL can compare with the name: text without NUL and surrogates."""
    return isinstance(name, str) and encodable(name)


def summarize(row: Schedule, now: datetime) -> dict[str, Any]:
    """Return a schedule as JSON values for commands, without its content, headers and producer."""
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
        "key": row.key,
        "priority": row.priority,
        "cost": row.cost,
        "state": state_of(row, now),
        "paused_until": _text(row.paused_until) if row.is_paused(now) else None,
        "next_slot": _text(row.next_slot),
        "last_slot": _text(row.last_slot),
        "last_reason": row.last_reason,
        "last_late_seconds": row.last_late_seconds,
        "error": row.error or row.rule.problem,
    }


def state_of(row: Schedule, now: datetime) -> str:
    """Return "paused", "refused" (publishing the next slot failed), "ended" or "active"."""
    if row.is_paused(now):
        return "paused"
    if row.failures:
        return "refused"
    return "ended" if row.next_slot is None else "active"


def upcoming(row: Schedule, count: int = SHOWN_SLOTS) -> list[UpcomingSlot]:
    """Return the next slots, or none if none follows or this machine lacks the time zone."""
    if row.next_slot is None or row.rule.problem:
        return []
    slots = chain([row.next_slot], row.rule.slots_after(row.next_slot))
    return list(format_slots(row.rule, row.next_slot, islice(slots, count)))


def format_slots(rule: Rule, since: datetime, slots: Iterable[datetime]) -> Iterator[UpcomingSlot]:
    """Yield slots as text, each with the change of the UTC offset since the slot before.

    For the first slot the change counts from the time `since`.
    """
    zone = rule.shown_zone
    offset = offset_at(zone, since)
    for slot in slots:
        before, offset = offset, offset_at(zone, slot)
        local = slot.astimezone(zone)
        yield UpcomingSlot(
            format_slot(slot), local.isoformat(sep=" "), _format_change(offset - before)
        )


def history(row: Schedule, count: int) -> list[Slot]:
    """Return the newest `count` records of a schedule's slots, the newest first."""
    rows = Slot.objects.using(settings().DATABASE).filter(schedule_id=row.pk)
    return list(rows.order_by("-slot_at")[:count])


def describe_slot(slot: Slot) -> dict[str, Any]:
    """Return the record of a slot as JSON values, for commands."""
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
