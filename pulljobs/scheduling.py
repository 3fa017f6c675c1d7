"""Publishing later: messages that wait for their time, and go to the consumers of then."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import uuid4

from django.db import DataError, IntegrityError, transaction

from pulljobs import emission
from pulljobs.conf import settings
from pulljobs.engine import tracing
from pulljobs.engine.telemetry import MessageHeldBack
from pulljobs.engine.validation import NewMessage
from pulljobs.errors import (
    DuplicateMessage,
    DuplicateSchedule,
    InvalidMessage,
    PublishError,
    ScheduledTooSoon,
)
from pulljobs.models import Channel, Producer, ScheduledMessage
from pulljobs.publishing import Draft, checked, publish_checked
from pulljobs.storage import bounds, scheduled
from pulljobs.storage.statements import brief, retrying

BATCH: Final = 100
HELD_BACK: Final = timedelta(minutes=1)


def schedule(
    channel: Channel,
    payload: Any,
    at: datetime,
    *,
    key: str | None = None,
    priority: int = 0,
    message_id: str | None = None,
    headers: Mapping[str, str] | None = None,
    content_type: str | None = None,
    producer: Producer | None = None,
) -> ScheduledMessage:
    """Have a message published at that aware moment; joins the caller's transaction.

    The other arguments are those of `publish`; ids of scheduled messages are a space of their own,
    and stay taken until `RETENTION` has passed since they were published. Raises what `publish`
    raises, ScheduledTooSoon and DuplicateSchedule.
    """
    check_time(at)
    message = checked(
        Draft(
            payload=payload,
            key=key,
            priority=priority,
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
        with (
            tracing.publishing(channel.name, [row.headers]),
            transaction.atomic(using=settings().DATABASE),
        ):
            row.save(using=settings().DATABASE, force_insert=True)
    except IntegrityError as error:
        raise DuplicateSchedule(row.client_message_id) from error
    return row


def check_time(at: datetime) -> None:
    """Raise ScheduledTooSoon unless the database's clock leaves it the least delay."""
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise InvalidMessage(f"{at!r} must be an aware datetime: give it a time zone.")
    least = settings().MIN_SCHEDULE_DELAY
    if at - scheduled.now(settings().DATABASE) < least:
        raise ScheduledTooSoon(least.total_seconds())


def dispatch() -> int:
    """Publish what is due, each exactly once, a batch a transaction; how many."""
    published = 0
    while (batch := dispatch_some()) is not None:
        published += batch
    return published


def dispatch_some() -> int | None:
    """A batch of it; None: nothing is due."""
    using = settings().DATABASE
    return retrying(using, partial(_dispatch_batch, using))


def _dispatch_batch(using: str) -> int | None:
    with brief(using):
        due = scheduled.due(using, BATCH)
        _lock_keys(using, due)
        done = [one.pk for one in due if _published(using, one)]
        scheduled.mark_dispatched(using, done)
    return len(done) if due else None


def _lock_keys(using: str, due: list[ScheduledMessage]) -> None:
    """As whoever publishes several is asked to: they are due in any order."""
    keys: defaultdict[str, list[str | None]] = defaultdict(list)
    for one in due:
        keys[one.channel.name].append(one.key)
    for channel in sorted(keys):
        bounds.lock(using, channel, keys[channel])


def _published(using: str, due: ScheduledMessage) -> bool:
    """False: it was refused, and is put off so that others get their turn."""
    try:
        with transaction.atomic(using=using):
            _publish(using, due)
    except (PublishError, DataError) as error:
        scheduled.put_off(using, due.pk, HELD_BACK)
        # Of an error of the database no more: it may go on with what it was given.
        why = str(error).partition("\n")[0]
        emission.emit_on_commit(using, MessageHeldBack(due.channel.name, why))
        return False
    return True


def _publish(using: str, due: ScheduledMessage) -> None:
    # Not checked again: it was accepted, and has a trace's headers by now, or other limits.
    message = NewMessage(
        payload=bytes(due.payload),
        content_type=due.content_type,
        headers=due.headers,
        key=due.key,
        priority=due.priority,
        client_message_id=due.client_message_id,
    )
    try:
        publish_checked(due.channel.name, message, due.producer, using)
    except DuplicateMessage:
        # A plain message bears its id, which is no reason to lose this one.
        unnamed = message._replace(client_message_id=None)
        publish_checked(due.channel.name, unnamed, due.producer, using)
