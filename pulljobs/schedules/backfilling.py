"""Firing on request: publish a schedule's message now, or once for each past slot of a window."""

from datetime import datetime
from itertools import islice, takewhile
from typing import Final, NamedTuple

from django.db import transaction

from pulljobs.conf import settings
from pulljobs.engine.validation import NewMessage
from pulljobs.errors import InvalidSchedule, KeyFull, PulljobsError
from pulljobs.models import Producer
from pulljobs.publishing import publish_all_checked
from pulljobs.schedules.editing import check_channel, lock
from pulljobs.schedules.firing import message_of, record
from pulljobs.schedules.models import Schedule, Slot, SlotReason
from pulljobs.schedules.planning import PlannedSlot
from pulljobs.schedules.rule_checks import check_aware
from pulljobs.schedules.rules import format_slot
from pulljobs.storage import nodes

MOST_SLOTS: Final = 1_000
"""Maximum number of slots in the window of a backfill."""


class BackfillPlan(NamedTuple):
    """Result of `plan_backfill`: past slots that are left to fire, and the number that fired."""

    left: list[datetime]
    """Slots that did not fire and that a backfill fires, in order."""
    fired: int
    """Number of slots that have fired."""


def fire_now(name: str, *, opened_at: datetime | None = None) -> Slot:
    """Publish the message of a schedule now, whatever its rule, and return the record.

    The record's slot is the present time. A pause of the schedule does not matter. Join the
    caller's transaction. Raise UnknownSchedule, what `publish` raises, and PulljobsError if a user
    fired the schedule after `opened_at`, the time when the caller's page was opened.
    """
    using = settings().DATABASE
    with transaction.atomic(using=using):
        row, now = lock(using, name), nodes.clock(using)
        _check_page(using, row, opened_at)
        [slot] = _publish(using, row, [PlannedSlot(now, now, SlotReason.NOW)])
        return _find(using, row, slot.slot)


def backfill(name: str, start: datetime, end: datetime) -> list[Slot]:
    """Publish a message for each past slot in [`start`, `end`) that did not fire.

    The slots are those of the present rule, even before the schedule was created. The records of
    skipped slots are replaced, by records with the reason `backfill`. Slots from `next_slot` on
    are left to the workers. Join the caller's transaction. Return the new records in the order
    of their slots. Raise UnknownSchedule, what `publish` raises, and InvalidSchedule for a window
    that is empty, for more than 1,000 slots, and for a part of the window that is older than
    `RETENTION`, but not than the schedule: the records of slots that fired then may be deleted.
    """
    using = settings().DATABASE
    with transaction.atomic(using=using):
        row = lock(using, name)
        planned = [
            PlannedSlot(slot, row.rule.fires_at(slot, row.name), SlotReason.BACKFILL)
            for slot in plan_backfill(row, start, end).left
        ]
        _publish(using, row, planned)
        records = Slot.objects.using(using).filter(
            schedule_id=row.pk, slot_at__in=[slot.slot for slot in planned]
        )
        return list(records.order_by("slot_at"))


def plan_backfill(row: Schedule, start: datetime, end: datetime) -> BackfillPlan:
    """Return which past slots of a schedule in [`start`, `end`) a backfill would fire.

    Raise InvalidSchedule for a naive time, an empty window, more than 1,000 slots, and slots so old
    that their records may be deleted.
    """
    _check_window(start, end)
    if start >= end:
        raise InvalidSchedule(
            "end",
            f"The window ends at {format_slot(end)} and begins at {format_slot(start)}. Choose an "
            "end after the start.",
        )
    using = settings().DATABASE
    now = nodes.clock(using)
    _check_history(row, start, end, now)
    slots = _slots_between(row, start, min(filter(None, (end, row.next_slot, now))))
    records = Slot.objects.using(using).filter(
        schedule_id=row.pk, slot_at__in=slots, message_id__isnull=False
    )
    fired = set(records.values_list("slot_at", flat=True))
    return BackfillPlan([slot for slot in slots if slot not in fired], len(fired))


def _check_window(start: datetime | None, end: datetime | None) -> None:
    for name, moment in (("start", start), ("end", end)):
        check_aware(name, moment)
        if moment is None:
            raise InvalidSchedule(name, f"{name} must be an aware datetime, not None.")


def _check_history(row: Schedule, start: datetime, end: datetime, now: datetime) -> None:
    """Raise InvalidSchedule if slots in [`start`, `end`) may have fired and lost their records."""
    retention = settings().RETENTION
    if retention is None:
        return
    known = now - retention
    if max(start, row.created_at) < min(end, known):
        raise InvalidSchedule(
            "start",
            f"Records of slots before {format_slot(known)} may be deleted, so that such slots "
            "could fire twice: begin the window there.",
        )


def _slots_between(row: Schedule, start: datetime, end: datetime) -> list[datetime]:
    # The slot at `start` belongs to the window.
    before = start - datetime.resolution
    slots = takewhile(lambda slot: slot < end, row.rule.slots_after(before))
    first = list(islice(slots, MOST_SLOTS + 1))
    if len(first) > MOST_SLOTS:
        raise InvalidSchedule(
            "end",
            f"The window has more than {MOST_SLOTS:,} slots: backfill up to "
            f"{format_slot(first[MOST_SLOTS])} first.",
        )
    return first


def _publish(using: str, row: Schedule, planned: list[PlannedSlot]) -> list[PlannedSlot]:
    """Publish and record all slots or none, and return them with the ids of their messages."""
    if not planned:
        return []
    check_channel(using, row.channel_name)
    cost = None if row.cost == 1 else row.cost
    content = (bytes(row.payload), row.content_type, row.headers, row.key, row.priority)
    message = NewMessage(*content, cost=cost)
    messages = [message_of(row.name, slot.slot, message) for slot in planned]
    producer = Producer(pk=row.producer_id) if row.producer_id else None
    receipts = publish_all_checked(row.channel_name, messages, producer, using)
    for slot, receipt in zip(planned, receipts, strict=True):
        if receipt.key_full:
            raise KeyFull(str(row.key), row.channel_name, receipt.message_id)
        slot.message_id = receipt.message_id
    record(using, [(row.pk, slot) for slot in planned], replaces=True)
    row.last_message_id = planned[-1].message_id
    row.save(using=using, update_fields=["last_message_id"])
    return planned


def _check_page(using: str, row: Schedule, opened_at: datetime | None) -> None:
    """Raise PulljobsError if a user fired the schedule after `opened_at`, if that is given."""
    if opened_at is None:
        return
    fired = Slot.objects.using(using).filter(
        schedule_id=row.pk, slot_at__gt=opened_at, reason=SlotReason.NOW
    )
    if fired.exists():
        raise PulljobsError(
            "The schedule was not fired again: it was fired after you opened the page. Open the "
            "page again to fire it once more."
        )


def _find(using: str, row: Schedule, slot: datetime) -> Slot:
    return Slot.objects.using(using).get(schedule_id=row.pk, slot_at=slot)
