"""Call of one handler in a test with a made-up job, without a queue."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import uuid4

from django.db import connections, transaction
from django.utils import timezone

from pulljobs import handlers
from pulljobs.claimed_jobs import Grant
from pulljobs.conf import settings
from pulljobs.engine import encodings, outcomes
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.handlers import AckPolicy, ClaimedJob, Handler
from pulljobs.models.options import check_flags, name_of
from pulljobs.publishing import Draft, Payload, checked
from pulljobs.states import Event
from pulljobs.storage.rows import HeldJob, StoredMessage
from pulljobs.testing.arguments import check_aware, check_count
from pulljobs.testing.recording import RecordedFunction, record
from pulljobs.worker import executor, transactions


class PerformedJob(NamedTuple):
    """Outcome that a worker would write for the job, as `perform` returns it."""

    event: Event
    """DELIVER, RETRY, RELEASE or REJECT. A snoozed job is released."""
    result: Any
    """Return value of the handler, encoded as JSON and decoded again."""
    error: str | None
    """Error text of a retry or a rejection, reason of a snooze, or None."""
    after: timedelta | None
    """Delay of a retry or a snooze, or None if the retry strategy of the consumer sets it."""
    exception: BaseException | None
    """Exception that the handler raised, or that its transaction raised at its end, or None."""


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
) -> PerformedJob:
    """Run a handler with a job that is in no table, and return the outcome.

    Only the handler itself reads or writes rows. The arguments describe the job: `stopping` makes
    it look like a job of a worker that stops, and `lost` like one whose lease was lost. With
    `lost`, a worker would discard the outcome that is returned.

    The options of the handler's registration apply. A function that is not registered has none. A
    transactional handler gets its transaction, which is rolled back where a worker would do so.
    Raise AssertionError if the handler raised LeaseLost without `lost`. Raise InvalidMessage,
    ConfigurationError or TypeError for arguments that no job has, and TypeError for a workflow.
    """
    handler = _registration(function)
    recorded = record(_with_query(handler))
    draft = Draft(
        payload=payload,
        key=key,
        headers=headers or {},
        priority=priority,
        message_id=message_id,
        content_type=content_type,
    )
    check_flags("perform", stopping=stopping, lost=lost)
    check_count("retry_count", retry_count)
    deliveries = retry_count + 1 if deliveries is None else deliveries
    check_count("deliveries", deliveries, 1)  # The claim of the run is one of them.
    grant = Grant(
        handler=_without_rows(handler, recorded),
        lease_duration=timedelta(seconds=30),
        claimed_at=float("-inf") if lost else time.monotonic(),
        renew=lambda job: not lost,
        stopping=lambda: stopping,
    )
    job = ClaimedJob(
        HeldJob(1, 1, priority, retry_count, deliveries),
        _stored(draft, timezone.now() if published_at is None else published_at),
        Held(1, uuid4()),
        grant,
    )
    job.is_settled = handler.ack_policy is AckPolicy.ACK_FIRST  # A worker has delivered it by now.
    outcome = _run_in_transaction(job, handler, recorded, is_lost=lost)
    if job.is_settled:
        outcome = outcomes.deliver(job.held)
    return _performed(outcome, recorded)


def _stored(draft: Draft, published_at: datetime) -> StoredMessage:
    """Return the message of a draft as a worker reads it, or raise what a publish raises."""
    check_aware("published_at", published_at)
    message = checked(draft, settings())
    return StoredMessage(
        1,
        message.payload,
        message.content_type,
        message.headers or None,
        encodings.encode_timestamp(published_at.astimezone()),
        message.client_message_id,
        message.key,
    )


def _performed(outcome: Settlement | None, recorded: RecordedFunction) -> PerformedJob:
    if outcome is None:
        raise AssertionError(
            "The handler raised LeaseLost: its worker would write nothing."
        ) from recorded.exception
    result = None if outcome.result is None else json.loads(outcome.result)
    return PerformedJob(outcome.event, result, outcome.error, outcome.delay, recorded.exception)


def _registration(function: Callable[[ClaimedJob], Any]) -> Handler:
    for handler in handlers.registered():
        if handler.is_fenced and getattr(handler.function, "__wrapped__", None) is function:
            raise TypeError(
                f"{name_of(function)} is a workflow, whose runs are rows: call run_workflow() in "
                "place of perform()."
            )
        if handler.function is function:
            return handler
    return Handler(channel="test", consumer="test", function=function)


def _with_query(handler: Handler) -> Handler:
    """Return a transactional handler whose function ends with a query, in place of the settlement.

    The query raises if an error has broken the transaction, as the settlement would. Return other
    handlers unchanged.
    """
    if not handler.transactional:
        return handler

    def function(job: ClaimedJob) -> Any:
        result = handler.function(job)
        for using in transactions.databases():
            with connections[using].cursor() as cursor:
                cursor.execute("SELECT 1")
        return result

    return replace(handler, function=function)


def _without_rows(handler: Handler, recorded: RecordedFunction) -> Handler:
    """Return a copy of the handler for which the executor writes no settlement.

    The job of `perform` is in no table. The function of the copy is `recorded`.
    """
    if handler.ack_policy is AckPolicy.ACK_FIRST:
        return replace(handler, function=recorded, ack_policy=AckPolicy.ACK)
    if not handler.transactional:
        return replace(handler, function=recorded)

    def function(job: ClaimedJob) -> Any:
        try:
            return recorded(job)
        except BaseException:
            job.handler = handler  # The outcome depends on what the transaction rolls back.
            raise

    return replace(handler, function=function, transactional=False)


def _run_in_transaction(
    job: ClaimedJob, handler: Handler, recorded: RecordedFunction, *, is_lost: bool
) -> Settlement | None:
    """Run the job and return its outcome, or None if the handler raised LeaseLost for a held job.

    A transactional handler gets a transaction, which is rolled back where a worker would do so.
    """
    if not handler.transactional:
        return executor.perform(job)
    with transactions.atomic():
        outcome = executor.perform(job)
        if is_lost or not _keeps_effects(job, outcome, recorded):
            for using in transactions.databases():
                transaction.set_rollback(True, using=using)
    return outcome


def _keeps_effects(job: ClaimedJob, outcome: Settlement | None, recorded: RecordedFunction) -> bool:
    has_outcome = job.settlement is not None
    is_delivery = outcome is not None and outcome.event is Event.DELIVER
    return recorded.exception is None and (has_outcome or is_delivery)
