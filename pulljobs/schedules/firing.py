"""Firing of due schedules: publish, record the slots and move each row to its next slot.

A batch does this in one transaction, so that each slot fires once.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from django.db import DataError, OperationalError, transaction

from pulljobs import emission
from pulljobs.conf import settings
from pulljobs.engine.encodings import integer_array
from pulljobs.engine.validation import NewMessage
from pulljobs.errors import InvalidSchedule, PublishError, UnknownChannel
from pulljobs.models import Producer
from pulljobs.publishing import Receipt, publish_all_checked
from pulljobs.schedules.models import Overlap, SlotReason
from pulljobs.schedules.planning import DueSchedule, Plan, PlannedSlot, plan_pass
from pulljobs.schedules.rules import format_slot
from pulljobs.schedules.telemetry import ScheduleRefused, SlotsRecorded
from pulljobs.storage.sessions import LOCK_SECONDS
from pulljobs.storage.statements import run
from pulljobs.storage.transactions import brief, is_wait, retrying

BATCH: Final = 200
BATCH_SLOTS: Final = 10_000
"""Number of slots at which a batch plans no further schedule, so that its transaction is short."""
MOST_WAITS: Final = 2
"""Number of keys that stayed locked for two seconds, after which a batch tries no other key."""
LONGEST_RETRY: Final = timedelta(minutes=1)
SCHEDULE_HEADER: Final = "Pulljobs-Schedule"
SLOT_HEADER: Final = "Pulljobs-Slot"
FULL: Final = "The key takes no more jobs now."
BUSY: Final = "Another transaction holds a lock that the publish needs."

Firing = tuple[Plan, PlannedSlot]


def fire_due() -> int:
    """Fire all due schedules in batches. Return the number of slots that fired or were skipped."""
    recorded = 0
    while (batch := fire_batch()) is not None:
        recorded += batch
    return recorded


def fire_more() -> bool:
    """Fire up to 200 due schedules. Return False if none was due, or others had them locked."""
    return fire_batch() is not None


def fire_batch() -> int | None:
    """Fire up to 200 due schedules in one transaction, which is repeated after a deadlock.

    Return the number of slots that fired or were skipped, or None if no schedule was due and
    unlocked.
    """
    using = settings().DATABASE
    return retrying(using, partial(_fire_batch, using))


def message_of(schedule_name: str, slot: datetime, message: NewMessage) -> NewMessage:
    """Return the message of a schedule for a slot, with headers that name schedule and slot.

    Its client message id has both, too, so that the dedupe window refuses a second one.
    """
    text = format_slot(slot)
    return message._replace(
        client_message_id=f"{schedule_name}:{text}",
        headers={**message.headers, SCHEDULE_HEADER: schedule_name, SLOT_HEADER: text},
    )


def record(using: str, slots: Sequence[tuple[int, PlannedSlot]], *, replaces: bool = False) -> None:
    """Write the records of slots, given as (id of the schedule, slot), and set their lateness.

    Slots with a record are left out. With `replaces`, records of skipped slots are overwritten.
    """
    planned = [slot for _id, slot in slots]
    params = {
        "schedule_ids": integer_array(id for id, _slot in slots),
        "slots": [slot.slot for slot in planned],
        "fire_times": [slot.fires_at for slot in planned],
        "message_ids": [slot.message_id for slot in planned],
        "reasons": [str(slot.reason) for slot in planned],
        "errors": [slot.error for slot in planned],
        "replaces": replaces,
    }
    rows = run(using, "record_slots", params)
    late = {(row.schedule_id, row.slot_at): row.late_seconds for row in rows}
    for id, slot in slots:
        slot.late_seconds = late.get((id, slot.slot))


def _fire_batch(using: str) -> int | None:
    with brief(using, lock_seconds=LOCK_SECONDS):
        rows = run(using, "due_schedules", {"wanted": BATCH}, kind=DueSchedule)
        plans = list(_plan(rows))
        _skip_overlaps(using, plans)
        _publish_all(using, plans)
        slots = [(plan.schedule.id, slot) for plan in plans for slot in plan.slots]
        if slots:
            record(using, slots)
        if plans:
            _move(using, plans)
        _emit(using, plans)
    return len(slots) if rows else None


def _plan(rows: Iterable[DueSchedule]) -> Iterator[Plan]:
    """Yield plans of due schedules, until the plans have 10,000 slots. Other schedules stay due."""
    slots = 0
    for row in rows:
        plan = _plan_or_refuse(row)
        slots += len(plan.slots)
        yield plan
        if slots >= BATCH_SLOTS:
            return


def _plan_or_refuse(row: DueSchedule) -> Plan:
    """Plan a due schedule.

    If this process can't evaluate the rule, return a plan without slots, whose `refusal` says why.
    """
    try:
        return plan_pass(row)
    except Exception as error:  # Such as a time zone that only newer machines know.
        reason = str(error) if isinstance(error, InvalidSchedule) else repr(error)
        return Plan(row, next_slot=row.next_slot, refusal=f"The rule can't be evaluated: {reason}")


def _skip_overlaps(using: str, plans: Iterable[Plan]) -> None:
    """Skip slots of schedules with `overlap="skip"` that have a job in the queue or in flight.

    Such a job is of the schedule's last message. Without one the first slot fires, and its job
    makes the plan skip the others.
    """
    plans = [plan for plan in plans if plan.schedule.overlap == Overlap.SKIP and plan.firing]
    previous = {plan.schedule.last_message_id for plan in plans} - {None}
    params = {"message_ids": integer_array(filter(None, previous))}
    live = {row.message_id for row in run(using, "live_messages", params)} if previous else set()
    for plan in plans:
        first = plan.schedule.last_message_id not in live
        for slot in plan.firing[first:]:  # The first slot's job will be live when others fire.
            slot.reason = SlotReason.OVERLAP


def _publish_all(using: str, plans: Iterable[Plan]) -> None:
    """Publish the messages of the slots that fire, those of one channel together if possible.

    A refused publish is noted in the plan of its schedule. The other schedules go on.
    """
    groups: defaultdict[tuple[str, int, bool], list[Firing]] = defaultdict(list)
    one_by_one: list[Firing] = []
    for plan in plans:
        firing, schedule = [(plan, slot) for slot in plan.firing], plan.schedule
        if len(firing) == 1:
            keyed = schedule.key is not None
            groups[schedule.channel_name, schedule.producer_id or 0, keyed] += firing
        else:
            one_by_one += firing
    for _channel, group in sorted(groups.items()):
        one_by_one += _publish_together(using, group)
    _publish_each(using, sorted(one_by_one, key=_lock_order))


def _publish_together(using: str, group: list[Firing]) -> list[Firing]:
    """Publish the messages of slots of one channel with one statement.

    If it fails, return all of them, to be published one by one, unless each of them would be
    refused, which is noted in their plans. Slots whose keys are full are refused alone.
    """
    refusal = _publish(using, group)
    if refusal is None:
        return []
    if len(group) > 1 and not isinstance(refusal, UnknownChannel):
        return group
    for plan, slot in group:
        plan.refuse(slot, _first_line(refusal))
    return []


def _publish_each(using: str, firing: list[Firing]) -> None:
    waited: set[tuple[str, str | None]] = set()
    for plan, slot in firing:
        key = plan.schedule.channel_name, plan.schedule.key
        if plan.refusal:
            continue
        # Further waits for locks would keep the other schedules of the batch too long.
        if key in waited or (plan.schedule.key is not None and len(waited) == MOST_WAITS):
            plan.refuse(slot, BUSY)
        elif (refusal := _publish(using, [(plan, slot)])) is not None:
            if is_wait(refusal):
                waited.add(key)
            plan.refuse(slot, _first_line(refusal))


def _lock_order(firing: Firing) -> tuple[str, str]:
    """Return channel and key as a sort key. All processes lock keys in this order: no deadlock."""
    schedule = firing[0].schedule
    return schedule.channel_name, schedule.key or ""


def _publish(using: str, group: list[Firing]) -> Exception | None:
    """Publish the messages of slots of one channel. Return the error of a refusal, or None.

    Each slot gets the id of its message. If its key is full, its plan gets the refusal.
    """
    schedule = group[0][0].schedule
    producer = Producer(pk=schedule.producer_id) if schedule.producer_id else None
    messages = [_message(plan.schedule, slot) for plan, slot in group]
    try:
        with transaction.atomic(using=using):
            receipts = publish_all_checked(schedule.channel_name, messages, producer, using)
    except (PublishError, DataError) as error:
        return error
    except OperationalError as error:
        if not is_wait(error):
            raise
        return error
    for (plan, slot), receipt in zip(group, receipts, strict=True):
        _note(plan, slot, receipt)
    return None


def _note(plan: Plan, slot: PlannedSlot, receipt: Receipt) -> None:
    if receipt.key_full:
        plan.refuse(slot, FULL)
    else:
        slot.message_id = receipt.message_id


def _message(schedule: DueSchedule, slot: PlannedSlot) -> NewMessage:
    # Not checked again: it was accepted, and the limits may differ by now.
    message = NewMessage(
        bytes(schedule.payload),
        schedule.content_type,
        schedule.headers,
        schedule.key,
        schedule.priority,
        cost=None if schedule.cost == 1 else schedule.cost,
    )
    return message_of(schedule.name, slot.slot, message)


def _first_line(error: Exception) -> str:
    """Return the first line of an error. Further lines of a database error may quote payloads."""
    return str(error).partition("\n")[0] or type(error).__name__


def _move(using: str, plans: Sequence[Plan]) -> None:
    last = [plan.slots[-1] if plan.slots else None for plan in plans]
    fired = [[slot for slot in plan.slots if slot.message_id is not None] for plan in plans]
    failures = [plan.schedule.failures + 1 if plan.refusal else 0 for plan in plans]
    params = {
        "ids": integer_array(plan.schedule.id for plan in plans),
        "next_slots": [plan.next_slot for plan in plans],
        "due_ats": [_due_at(plan) for plan in plans],
        "last_slots": [slot and slot.slot for slot in last],
        "last_reasons": [slot and str(slot.reason) for slot in last],
        "late_seconds": [slot and slot.late_seconds for slot in last],
        "last_message_ids": [slots[-1].message_id if slots else None for slots in fired],
        "failures": failures,
        "errors": [plan.refusal for plan in plans],
        "keep_pauses": [plan.is_cut or bool(plan.refusal) for plan in plans],
    }
    run(using, "move_schedules", params)


def _due_at(plan: Plan) -> datetime | None:
    schedule = plan.schedule
    if plan.refusal:
        pause = timedelta(seconds=2 ** min(schedule.failures, 6))
        return schedule.now + min(pause, LONGEST_RETRY)
    if plan.next_slot is None:
        return None
    return schedule.rule.fires_at(plan.next_slot, schedule.name)


def _emit(using: str, plans: Iterable[Plan]) -> None:
    fired: defaultdict[str, list[float]] = defaultdict(list)
    skipped: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for plan in plans:
        schedule = plan.schedule
        for slot in plan.slots:
            if slot.message_id is None:
                skipped[schedule.channel_name][str(slot.reason)] += 1
            else:
                fired[schedule.channel_name].append(slot.late_seconds or 0.0)
        if plan.refusal:
            refused = ScheduleRefused(schedule.channel_name, schedule.name, plan.refusal)
            emission.emit_on_commit(using, refused)
    for channel in fired.keys() | skipped.keys():
        emission.emit_on_commit(using, SlotsRecorded(channel, fired[channel], skipped[channel]))
