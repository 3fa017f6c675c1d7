"""Running one handler without a queue."""

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import uuid4

from django.db import connections, transaction
from django.utils import timezone

from pulljobs import handlers
from pulljobs.engine import encodings, outcomes
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.handlers import AckPolicy, ClaimedJob, Grant, Handler
from pulljobs.publishing import Payload, encoded
from pulljobs.states import Event
from pulljobs.storage.rows import HeldJob, StoredMessage
from pulljobs.testing.recording import Recorded, recording
from pulljobs.worker import executor, transactions


class Performed(NamedTuple):
    """What becomes of the job."""

    event: Event
    """DELIVER, RETRY or REJECT."""
    result: Any
    error: str | None
    after: timedelta | None
    """Of a retry, when the handler named a delay."""
    exception: BaseException | None
    """What the handler raised, or the settle in its transaction."""


def perform(
    function: Callable[[ClaimedJob], Any],
    payload: Payload = b"",
    *,
    key: str | None = None,
    headers: dict[str, str] | None = None,
    priority: int = 0,
    message_id: str | None = None,
    content_type: str | None = None,
    retry_count: int = 0,
    deliveries: int | None = None,
    published_at: datetime | None = None,
    stopping: bool = False,
    lost: bool = False,
) -> Performed:
    """Run a handler with a job made up for it; no row is read or written but by the handler.

    It goes by its registration, or as one without options. A transactional handler gets its
    transaction, rolled back where its worker would. With `lost`, somebody else has the job:
    you see what the handler says of it, and its worker would write nothing.
    """
    handler = _registration(function)
    recorded = recording(_asking(handler))
    body, usual_type = encoded(payload)
    grant = Grant(
        handler=_without_rows(handler, recorded),
        lease_duration=timedelta(seconds=30),
        claimed_at=float("-inf") if lost else time.monotonic(),
        renew=lambda job: not lost,
        stopping=lambda: stopping,
    )
    published = (published_at or timezone.now()).astimezone()
    job = ClaimedJob(
        HeldJob(1, 1, priority, retry_count, deliveries or retry_count + 1),
        StoredMessage(
            1,
            body,
            content_type or usual_type,
            headers,
            encodings.encode_timestamp(published),
            message_id,
            key,
        ),
        Held(1, uuid4()),
        grant,
    )
    with _transaction(handler):
        said = executor.perform(job)
        if handler.transactional and (lost or not _keeps_effects(job, said, recorded)):
            for using in transactions.databases():
                transaction.set_rollback(True, using=using)
    if handler.ack_policy is AckPolicy.ACK_FIRST:
        said = outcomes.deliver(job.held)  # A worker had said so before it ran.
    return _performed(said, recorded)


def _performed(said: Settlement | None, recorded: Recorded) -> Performed:
    if said is None:
        raise AssertionError(
            "The handler raised LeaseLost: its worker would write nothing."
        ) from recorded.exception
    result = None if said.result is None else json.loads(said.result)
    return Performed(said.event, result, said.error, said.delay, recorded.exception)


def _registration(function: Callable[[ClaimedJob], Any]) -> Handler:
    registered = (one for one in handlers.registered() if one.function is function)
    return next(registered, Handler(channel="test", consumer="test", function=function))


def _asking(handler: Handler) -> Handler:
    """The same; what has spoilt its transaction is told after it, as the settle in it would."""
    if not handler.transactional:
        return handler

    def function(job: ClaimedJob) -> Any:
        result = handler.function(job)
        for using in transactions.databases():
            with connections[using].cursor() as cursor:
                cursor.execute("SELECT 1")
        return result

    return replace(handler, function=function)


def _without_rows(handler: Handler, recorded: Recorded) -> Handler:
    """The same for a job that is in no table: nothing is settled before it, nor with it."""
    if handler.ack_policy is AckPolicy.ACK_FIRST:
        return replace(handler, function=recorded, ack_policy=AckPolicy.ACK)
    if not handler.transactional:
        return replace(handler, function=recorded)

    def function(job: ClaimedJob) -> Any:
        try:
            return recorded(job)
        except BaseException:
            job.handler = handler  # What becomes of it goes by what is rolled back.
            raise

    return replace(handler, function=function, transactional=False)


def _transaction(handler: Handler) -> AbstractContextManager[None]:
    if handler.transactional:
        return transactions.together()
    return nullcontext()


def _keeps_effects(job: ClaimedJob, said: Settlement | None, recorded: Recorded) -> bool:
    spoke = job.settlement is not None or (said is not None and said.event is Event.DELIVER)
    return recorded.exception is None and spoke
