"""Execution of a handler without a queue."""

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
    """Outcome of the job."""

    event: Event
    """DELIVER, RETRY or REJECT."""
    result: Any
    error: str | None
    after: timedelta | None
    """Delay of a retry, if the handler chose one."""
    exception: BaseException | None
    """Exception of the handler, or of the settlement in its transaction."""


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
    """Run a handler with a job that exists only here; return the outcome that a worker would write.

    The options of its registration apply. A function that is not registered has none. Only the
    handler reads or writes rows. A transactional handler gets a transaction that is rolled back
    where a worker would do so. With `lost`, the job has lost its lease: the outcome of the handler
    is returned, and a worker would write nothing. With `stopping`, the worker is about to stop.

    Raise AssertionError if the handler raised LeaseLost.
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
        outcome = executor.perform(job)
        if handler.transactional and (lost or not _keeps_effects(job, outcome, recorded)):
            for using in transactions.databases():
                transaction.set_rollback(True, using=using)
    if handler.ack_policy is AckPolicy.ACK_FIRST:
        outcome = outcomes.deliver(job.held)  # a worker delivers before the run
    return _performed(outcome, recorded)


def _performed(outcome: Settlement | None, recorded: Recorded) -> Performed:
    if outcome is None:
        raise AssertionError(
            "The handler raised LeaseLost: its worker would write nothing."
        ) from recorded.exception
    result = None if outcome.result is None else json.loads(outcome.result)
    return Performed(outcome.event, result, outcome.error, outcome.delay, recorded.exception)


def _registration(function: Callable[[ClaimedJob], Any]) -> Handler:
    registered = (known for known in handlers.registered() if known.function is function)
    return next(registered, Handler(channel="test", consumer="test", function=function))


def _asking(handler: Handler) -> Handler:
    """Extend the handler by a query, which fails as a settlement in a broken transaction does."""
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
    """Change the handler so that nothing is settled before the run or in its transaction."""
    if handler.ack_policy is AckPolicy.ACK_FIRST:
        return replace(handler, function=recorded, ack_policy=AckPolicy.ACK)
    if not handler.transactional:
        return replace(handler, function=recorded)

    def function(job: ClaimedJob) -> Any:
        try:
            return recorded(job)
        except BaseException:
            job.handler = handler  # the outcome depends on its rollback
            raise

    return replace(handler, function=function, transactional=False)


def _transaction(handler: Handler) -> AbstractContextManager[None]:
    if handler.transactional:
        return transactions.together()
    return nullcontext()


def _keeps_effects(job: ClaimedJob, outcome: Settlement | None, recorded: Recorded) -> bool:
    spoke = job.settlement is not None or (outcome is not None and outcome.event is Event.DELIVER)
    return recorded.exception is None and spoke
