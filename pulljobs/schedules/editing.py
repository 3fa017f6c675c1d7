"""Verbs that create, change, pause and delete schedules. They join the caller's transaction."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import chain, islice, takewhile
from time import monotonic
from typing import Any, Final

from django.db import IntegrityError, connections, transaction

from pulljobs import emission
from pulljobs.conf import settings
from pulljobs.errors import InvalidSchedule, ScheduleExists, UnknownChannel, UnknownSchedule
from pulljobs.models import Channel, Producer
from pulljobs.operating import check_pause
from pulljobs.publishing import Payload
from pulljobs.schedules.definitions import RULE_FIELDS, Definition
from pulljobs.schedules.firing import record
from pulljobs.schedules.models import Schedule, SlotReason
from pulljobs.schedules.planning import PASS_SLOTS, PlannedSlot, is_in_pause
from pulljobs.schedules.reading import is_name
from pulljobs.schedules.rules import Rule
from pulljobs.schedules.telemetry import SlotsRecorded
from pulljobs.storage import listen, nodes

LONGEST_SLEEP: Final = timedelta(seconds=10)
"""Time after which each schedule loop reads again when the next schedule is due."""
MOST_LEFT: Final = 100_000
"""Maximum number of due slots that a change of the rule records as skipped."""
MOST_PAUSES: Final = 100
"""Maximum number of `earlier_pauses`. Slots of older pauses get the reason `missed`."""
WAKE_CHANNEL: Final = "pulljobs_schedules"
"""PostgreSQL channel (LISTEN) on which schedule loops are notified of changed rows."""


def create(
    name: str,
    channel: str,
    payload: Payload = None,
    *,
    paused_until: datetime | None = None,
    **options: Any,
) -> Schedule:
    """Create a schedule in the caller's transaction, or in one of its own, and return its row.

    A rule is either `cron` (text) or `every` (a timedelta), with `timezone`, `starts_at`,
    `ends_at` and `jitter`. `missed` ("latest", "skip" or "all"), `missed_bound`, `misfire_grace`
    and `overlap` ("allow" or "skip") say what happens to slots that can't fire in time. `key`,
    `priority`, `cost`, `headers`, `content_type` and `producer` are those of `publish`. With
    `paused_until`, an aware time, the schedule begins paused. Raise InvalidSchedule,
    ScheduleExists, UnknownChannel, InvalidMessage or PayloadTooLarge, and for `paused_until` what
    `pause` raises.
    """
    definition = Definition.make({"name": name, "channel": channel, "payload": payload, **options})
    with transaction.atomic(using=settings().DATABASE):
        row = add(definition, is_declared=False)
        return row if paused_until is None else pause(row.name, paused_until)


def add(definition: Definition, *, is_declared: bool) -> Schedule:
    """Check a definition and insert its row. Raise what `create` raises.

    `is_declared` is True for a schedule that a project declares in code.
    """
    using = settings().DATABASE
    now = nodes.clock(using)
    rule = definition.make_rule(now)
    row = Schedule(
        **definition.columns(rule),
        is_declared=is_declared,
        rule_since=now,
        next_slot=rule.next_slot(now),
    )
    row.due_at = _due_at(row)
    check_channel(using, definition.channel)
    _check_producer(using, definition.producer)
    try:
        with transaction.atomic(using=using):
            row.save(using=using, force_insert=True)
    except IntegrityError as error:
        raise ScheduleExists(definition.name) from error
    wake_if_soon(using, row, now)
    return row


def update(name: str, /, **options: Any) -> Schedule:
    """Change options of a schedule, with the keywords of `declare`. Other options stay.

    A changed rule counts from now on: slots of the old rule that are due but did not fire yet are
    recorded as skipped, with the reason `changed`, or `paused` inside a pause. Raise what `create`
    raises, UnknownSchedule, and InvalidSchedule for more than 100,000 such slots.
    """
    using = settings().DATABASE
    with transaction.atomic(using=using):
        row = lock(using, name)
        definition = Definition.from_row(row).changed(options)
        check_channel(using, definition.channel)
        _change(using, row, definition)
    return row


def _change(using: str, row: Schedule, definition: Definition) -> None:
    if row.is_declared and definition.name != row.name:
        raise InvalidSchedule(
            "name",
            f"Code declares {row.name!r}, and a worker would create it again under this name: "
            "rename it in the code, and delete this one.",
        )
    now = nodes.clock(using)
    changes_rule = any(getattr(row, name) != getattr(definition, name) for name in RULE_FIELDS)
    rule = definition.make_rule(now) if changes_rule else row.rule
    if changes_rule:
        _record_left(using, row, now)
    for column, value in definition.columns(rule).items():
        setattr(row, column, value)
    _check_producer(using, definition.producer)
    if changes_rule:
        row.__dict__.pop("rule", None)
        # The database's clock may have been set back: no slot fires twice.
        row.rule_since = max(filter(None, (now, row.last_slot)))
        row.next_slot = rule.next_slot(row.rule_since)
    row.failures, row.error = 0, ""
    row.due_at = _due_at(row)
    row.changed_at = _changed_at(row, now)
    try:
        with transaction.atomic(using=using):
            row.save(using=using)
    except IntegrityError as error:
        raise ScheduleExists(definition.name) from error
    wake_if_soon(using, row, now)


def pause(name: str, until: datetime | None = None) -> Schedule:
    """Pause a schedule until an aware time, by default until it is resumed.

    Slots inside the pause count as missed: when it ends, the policy `missed` decides which of them
    fire. Raise UnknownSchedule, ValueError for a naive time, and InvalidSchedule for a past one.
    """
    check_pause(until)
    using = settings().DATABASE
    with transaction.atomic(using=using):
        row, now = lock(using, name), nodes.clock(using)
        if until is not None and until <= now:
            raise InvalidSchedule("until", f"The pause must end in the future, not at {until}.")
        if not row.is_paused(now):
            _keep_ended_pause(row)
            row.paused_at = now
        row.paused_until = until
        _save_state(using, row, now)
    wake_if_soon(using, row, now)
    return row


def resume(name: str) -> Schedule:
    """End the pause of a schedule, if it is paused. Raise UnknownSchedule.

    The policy `missed` decides which slots inside the pause fire.
    """
    using = settings().DATABASE
    with transaction.atomic(using=using):
        row, now = lock(using, name), nodes.clock(using)
        if row.is_paused(now):
            row.paused_until = now
            _save_state(using, row, now)
    wake_if_soon(using, row, now)
    return row


def delete(name: str) -> None:
    """Delete a schedule, but not the records of its slots, or raise UnknownSchedule."""
    using = settings().DATABASE
    with transaction.atomic(using=using):
        lock(using, name).delete(using=using)


def lock(using: str, name: str) -> Schedule:
    """Lock the row of a schedule until the transaction ends, and return it.

    Raise UnknownSchedule. The lock is FOR NO KEY UPDATE: workers skip the row until then.
    """
    rows = Schedule.objects.using(using).select_for_update(of=("self",), no_key=True)
    row = rows.filter(name=name).first() if is_name(name) else None
    if row is None:
        raise UnknownSchedule(name)
    return row


def check_channel(using: str, name: str) -> None:
    """Raise UnknownChannel unless a channel of this name exists."""
    if not (is_name(name) and Channel.objects.using(using).filter(name=name).exists()):
        raise UnknownChannel(name)


def _check_producer(using: str, producer: Producer | None) -> None:
    """Raise InvalidSchedule if the row of the producer was deleted."""
    if producer and not Producer.objects.using(using).filter(pk=producer.pk).exists():
        raise InvalidSchedule(
            "producer",
            f"Producer {producer.name!r} was deleted: choose another one, or leave it out.",
        )


def wake_if_soon(using: str, row: Schedule, now: datetime) -> None:
    """Notify the schedule loops after the commit, if the row is due within 20 seconds then.

    For a later time it is enough that each loop reads the next due time every ten seconds. `now` is
    the present time by the database's clock.
    """
    due_at, began = row.due_at, monotonic()
    if due_at is None:
        return

    def wake() -> None:
        at = now + timedelta(seconds=monotonic() - began)
        if due_at <= at + 2 * LONGEST_SLEEP:
            with connections[using].cursor() as cursor:
                cursor.execute("SELECT pg_notify(%s, '')", [WAKE_CHANNEL])

    listen.notify_on_commit(using, wake)


def _due_at(row: Schedule) -> datetime | None:
    """Return the time from which a loop handles the row: its next slot fires, or its pause ends.

    None means never: no slot follows, or the pause lasts until the schedule is resumed.
    """
    if row.next_slot is None:
        return None
    fires_at = row.rule.fires_at(row.next_slot, row.name)
    if row.paused_at is None:
        return fires_at
    return None if row.paused_until is None else max(fires_at, row.paused_until)


def _changed_at(row: Schedule, now: datetime) -> datetime:
    """Return `now`, or the next whole second after the last change if that is later.

    So the header Last-Modified, which has whole seconds, differs after each change.
    """
    return max(now, row.changed_at.replace(microsecond=0) + timedelta(seconds=1))


def _save_state(using: str, row: Schedule, now: datetime) -> None:
    row.due_at = _due_at(row)
    row.changed_at = _changed_at(row, now)
    columns = ["paused_at", "paused_until", "earlier_pauses", "due_at", "changed_at"]
    row.save(using=using, update_fields=columns)


def _keep_ended_pause(row: Schedule) -> None:
    """Move an ended pause to `earlier_pauses` if it has slots without a record.

    Firing reads there that these slots were paused, even if another pause has begun since.
    """
    begin, end = row.paused_at, row.paused_until
    if begin and end and row.next_slot and row.next_slot < end:
        row.earlier_pauses = [*(row.earlier_pauses or []), begin, end][-2 * MOST_PAUSES :]


def _record_left(using: str, row: Schedule, now: datetime) -> None:
    """Record the due slots of the present rule as skipped, before the rule changes."""
    if row.next_slot is None:
        return
    left = _slots_until(row.rule, row.next_slot, now)
    skipped: Counter[str] = Counter()
    while batch := list(islice(left, PASS_SLOTS)):
        planned = [
            PlannedSlot(
                slot,
                row.rule.fires_at(slot, row.name),
                SlotReason.PAUSED if is_in_pause(row, slot) else SlotReason.CHANGED,
            )
            for slot in batch
        ]
        skipped.update(str(slot.reason) for slot in planned)
        if skipped.total() > MOST_LEFT:
            raise InvalidSchedule(
                "cron",
                f"More than {MOST_LEFT:,} slots have no record, which is too many for a change of "
                "the rule: end the pause or start a worker, so that they are recorded before it.",
            )
        record(using, [(row.pk, slot) for slot in planned])
        row.last_slot, row.last_reason = planned[-1].slot, planned[-1].reason
    if skipped:
        emission.emit_on_commit(using, SlotsRecorded(row.channel_name, [], skipped))


def _slots_until(rule: Rule, first: datetime, end: datetime) -> Iterator[datetime]:
    """Yield the slots from `first`, a slot itself, to `end`, both inclusive.

    If this machine does not know the time zone of the rule, only `first` is yielded.
    """
    others: Iterable[datetime] = () if rule.problem else rule.slots_after(first)
    return takewhile(lambda slot: slot <= end, chain([first], others))
