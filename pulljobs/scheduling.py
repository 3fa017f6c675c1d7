"""Scheduled messages: stored now, published at a later time to the consumers that exist then."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import uuid4

from django.db import DataError, IntegrityError, OperationalError, connections, transaction

from pulljobs import emission
from pulljobs.conf import settings
from pulljobs.engine import tracing
from pulljobs.engine.telemetry import MessageHeldBack
from pulljobs.engine.validation import NewMessage
from pulljobs.errors import (
    LONGEST_DELAY,
    DuplicateMessage,
    DuplicateSchedule,
    InvalidMessage,
    PublishError,
    ScheduledTooSoon,
)
from pulljobs.models import Channel, Producer, ScheduledMessage
from pulljobs.publishing import Draft, checked, publish_checked
from pulljobs.storage import bounds, nodes, scheduled
from pulljobs.storage.statements import query
from pulljobs.storage.transactions import brief, is_wait, retrying

BATCH: Final = 100
HELD_BACK: Final = timedelta(minutes=1)
"""Time after which a refused message is tried again."""
LOCKED_AGAIN: Final = timedelta(seconds=1)
"""Time after which a message is tried again whose key another transaction had locked."""
SHORT_WAIT: Final = "20ms"
"""Longest wait for a lock in the second try of a batch, after the wait of the first timed out."""


def schedule(
    channel: Channel,
    payload: Any,
    at: datetime,
    *,
    key: str | None = None,
    priority: int = 0,
    cost: int = 1,
    message_id: str | None = None,
    headers: Mapping[str, str] | None = None,
    content_type: str | None = None,
    producer: Producer | None = None,
) -> ScheduledMessage:
    """Store a message to be published at that aware time, in the caller's transaction if any.

    The other arguments are those of `publish`. A `message_id` may be that of a published message,
    but not that of another scheduled message of the channel, which keeps its id until `RETENTION`
    after its publish. Raise InvalidMessage, PayloadTooLarge, ScheduledTooSoon, DuplicateSchedule,
    or OperationalError after a minute of waiting for a transaction that has the same id.
    """
    if not isinstance(channel, Channel):
        raise InvalidMessage(f"channel must be a Channel, the row itself, not {channel!r}.")
    check_time(at)
    message = checked(
        Draft(
            payload=payload,
            key=key,
            priority=priority,
            cost=cost,
            message_id=message_id or uuid4().hex,
            headers=headers or {},
            content_type=content_type,
        ),
        settings(),
    )
    fields = message._asdict()
    del fields["delay"], fields["available_at"]
    row = ScheduledMessage(channel=channel, producer=producer, dispatch_at=at, **fields)
    try:
        with tracing.publishing(channel.name, [row.headers]):
            scheduled.add(settings().DATABASE, row)
    except IntegrityError as error:
        raise DuplicateSchedule(row.client_message_id) from error
    return row


def check_time(at: datetime) -> None:
    """Raise ScheduledTooSoon unless the time is at least `MIN_SCHEDULE_DELAY` ahead.

    The clock is the database's. Raise InvalidMessage for a naive time, and for a time more than 100
    years ahead.
    """
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise InvalidMessage(f"{at!r} must be an aware datetime: give it a time zone.")
    least, ahead = settings().MIN_SCHEDULE_DELAY, at - nodes.clock(settings().DATABASE)
    if ahead < least:
        raise ScheduledTooSoon(least.total_seconds())
    if ahead > LONGEST_DELAY:
        raise InvalidMessage(f"A message can be scheduled for the next 100 years, not for {at}.")


def dispatch() -> int:
    """Publish due messages, each exactly once, and put refused ones off. Return how many went."""
    published = 0
    while (batch := dispatch_some()) is not None:
        published += batch
    return published


def dispatch_some() -> int | None:
    """Publish a batch of due messages and return how many, or None if nothing is due.

    If the wait for a lock times out, the batch is tried again without such waits: messages of keys
    that another transaction has locked are then tried again a second later.
    """
    using = settings().DATABASE
    try:
        return retrying(using, partial(_dispatch_batch, using))
    except OperationalError as error:
        if connections[using].in_atomic_block or not is_wait(error):
            raise
        return retrying(using, partial(_dispatch_free, using))


def dispatch_more() -> bool:
    """Publish some of the messages that are due. Return True if more may be due."""
    return dispatch_some() is not None


def _dispatch_batch(using: str) -> int | None:
    with brief(using):
        due = scheduled.due(using, BATCH)
        _lock_keys(using, due)
        done = [message.pk for message in due if _try_to_publish(using, message)]
        scheduled.mark_dispatched(using, done)
    return len(done) if due else None


def _dispatch_free(using: str) -> int | None:
    """Publish as `dispatch_some` does, but put messages that wait for a lock off for a second."""
    with brief(using):
        query(using, "SELECT set_config('lock_timeout', %s, true)", [SHORT_WAIT])
        due = scheduled.due(using, BATCH)
        done = [message.pk for message in due if _try_without_waiting(using, message)]
        scheduled.mark_dispatched(using, done)
    return len(done) if due else None


def _try_without_waiting(using: str, due: ScheduledMessage) -> bool:
    """Publish a message. Return False if it was put off because of a lock or a refusal."""
    try:
        return _try_to_publish(using, due)
    except OperationalError as error:
        if not is_wait(error):
            raise
        scheduled.put_off(using, due.pk, LOCKED_AGAIN)
        return False


def _lock_keys(using: str, due: list[ScheduledMessage]) -> None:
    """Lock the bounded keys (`max_queued_per_key`) of all due messages before the first publish.

    All publishers lock in one order. Locks in the order of the messages could deadlock.
    """
    keys: defaultdict[str, list[str | None]] = defaultdict(list)
    for message in due:
        keys[message.channel.name].append(message.key)
    for channel in sorted(keys):
        bounds.lock(using, channel, keys[channel])


def _try_to_publish(using: str, due: ScheduledMessage) -> bool:
    """Publish a message and return True. Put it off for a minute and return False if it is refused.

    The other messages of the batch are published all the same.
    """
    try:
        with transaction.atomic(using=using):
            _publish(using, due)
    except (PublishError, DataError) as error:
        scheduled.put_off(using, due.pk, HELD_BACK)
        # The first line only: the rest of a database error may quote the message.
        why = str(error).partition("\n")[0]
        emission.emit_on_commit(using, MessageHeldBack(due.channel.name, why))
        return False
    return True


def _publish(using: str, due: ScheduledMessage) -> None:
    # Not checked again: it was accepted, and its headers or the limits may differ by now.
    message = NewMessage(
        payload=bytes(due.payload),
        content_type=due.content_type,
        headers=due.headers,
        key=due.key,
        priority=due.priority,
        cost=due.cost,
        client_message_id=due.client_message_id,
    )
    try:
        publish_checked(due.channel.name, message, due.producer, using)
    except DuplicateMessage:
        # A message that was not scheduled has taken the id: publish this one without an id.
        unnamed = message._replace(client_message_id=None)
        publish_checked(due.channel.name, unnamed, due.producer, using)
