"""Execution of ready jobs in the process of the test."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Final, NamedTuple

from django.db import connections, transaction
from django.db.models.functions import Now

from pulljobs import handlers, jobs, pulling
from pulljobs.conf import settings
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.errors import ConfigurationError
from pulljobs.handlers import ClaimedJob, Grant, Handler
from pulljobs.models import Consumer, Job
from pulljobs.pulling import Claim, Puller
from pulljobs.states import State
from pulljobs.storage.rows import HeldJob, JobView, StoredMessage, Taken
from pulljobs.testing.recording import recording
from pulljobs.worker import executor, transactions
from pulljobs.worker.fetcher import renew_one
from pulljobs.worker.flusher import BACK
from pulljobs.worker.give_up_hooks import call_on_giving_up

BATCH: Final = 100


class Ran(NamedTuple):
    """Run of a handler, and the job after it."""

    channel: str
    consumer: str
    payload: bytes
    job: JobView
    """State, reason, retry_count, error, result and so on after the run."""
    exception: BaseException | None
    """Exception that the handler raised."""


def drain(
    channel: str | None = None,
    consumer: str | None = None,
    *,
    delayed: bool = False,
    rounds: int = 100,
) -> list[Ran]:
    """Run the handlers of all ready jobs, and of the jobs that become ready by that.

    Each job is claimed, performed and settled as a worker does it. `channel` and `consumer` limit
    it to some handlers. With `delayed`, jobs that are due later (published with a delay, or to be
    retried) run at once. The runs are returned in their order.

    Raise AssertionError if jobs are still ready after `rounds` rounds. Rounds do not count in which
    a job that existed at the start runs for the first time. Raise ConfigurationError if no handler
    serves that channel and consumer.
    """
    handlers.autodiscover()
    sources = _sources(channel, consumer)
    waiting = set(Job.objects.using(settings().DATABASE).values_list("id", flat=True))
    ran: list[Ran] = []
    left = rounds
    while new := [run for source in sources for run in _round_of(*source, delayed)]:
        ran += new
        done = {run.job.id for run in new}
        left -= waiting.isdisjoint(done)
        waiting -= done
        if left < 1 and any(_is_ready(puller, delayed) for puller, _handler in sources):
            raise AssertionError(
                f"Jobs are still ready after {rounds} rounds: a handler that always asks for a "
                "retry, or publishes to its own channel, never ends."
            )
    return ran


def _sources(channel: str | None, consumer: str | None) -> list[tuple[Puller, Handler]]:
    rows = zip(handlers.sync_consumers(), handlers.serving(), strict=True)
    chosen = [
        (Puller(settings().DATABASE, row), handler)
        for row, handler in rows
        if channel in (None, handler.channel) and consumer in (None, handler.consumer)
    ]
    if not chosen:
        raise ConfigurationError(
            f"No handler serves channel {channel or 'any'!r}, consumer {consumer or 'any'!r}."
        )
    return chosen


def _round_of(puller: Puller, handler: Handler, delayed: bool) -> list[Ran]:
    claim = _claim(puller, BATCH, delayed)
    return [
        _run(puller.consumer, handler, claim.taken, row, message)
        for row, message in claim.jobs
        if claim.taken is not None
    ]


def _is_ready(puller: Puller, delayed: bool) -> bool:
    """Return True if a claim, which is rolled back, takes a job."""
    with transaction.atomic(using=puller.using):
        claim = _claim(puller, 1, delayed)
        transaction.set_rollback(True, using=puller.using)
    return bool(claim.jobs)


def _claim(puller: Puller, wanted: int, delayed: bool) -> Claim:
    if delayed:
        _hurry(puller.consumer)
    return puller.claim(wanted)


def _hurry(consumer: Consumer) -> None:
    """Make jobs due that are due later."""
    Job.objects.using(settings().DATABASE).filter(
        consumer=consumer, state=State.QUEUED, available_at__gt=Now()
    ).update(available_at=Now())


def _run(
    consumer: Consumer, handler: Handler, taken: Taken, row: HeldJob, message: StoredMessage
) -> Ran:
    recorded = recording(handler)
    grant = Grant(
        handler=handlers.traced(replace(handler, function=recorded)),
        lease_duration=consumer.lease_duration,
        claimed_at=time.monotonic(),
        renew=renew_one,
        stopping=lambda: False,
    )
    job = ClaimedJob(row, message, Held(row.id, taken.lease_token), grant)
    with _usable_transactions():
        settlement = executor.perform(job)
    if (job.went_to if settlement is None else _finish(job, settlement)) is State.DEAD:
        with _usable_transactions():
            call_on_giving_up(job)
    return Ran(
        handler.channel, handler.consumer, message.payload, jobs.get(row.id), recorded.exception
    )


def _finish(job: ClaimedJob, settlement: Settlement) -> State | None:
    """Settle the job; return its state if it was to go back to the queue."""
    finished = pulling.finish([settlement], lambda: {job.id: job.handler.path})
    return finished.states.get(job.id) if settlement.event in BACK else None


@contextmanager
def _usable_transactions() -> Iterator[None]:
    with ExitStack() as usable:
        for using in transactions.databases():
            usable.enter_context(_usable_transaction(using))
        yield


@contextmanager
def _usable_transaction(using: str) -> Iterator[None]:
    """Undo the writes of a handler whose database error broke the transaction of the test."""
    if not connections[using].in_atomic_block:
        yield
        return
    before = transaction.savepoint(using=using)
    yield
    if transactions.is_spoilt(using):
        transaction.set_rollback(False, using=using)
        transaction.savepoint_rollback(before, using=using)
    else:
        transaction.savepoint_commit(before, using=using)
