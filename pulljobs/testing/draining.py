"""Draining of queues in a test: ready jobs run at once, in the test's process and connection."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Final, NamedTuple

from django.db import connections, transaction
from django.db.models import Q
from django.db.models.functions import Now

from pulljobs import handlers, hooks, jobs, pulling
from pulljobs.claimed_jobs import Grant
from pulljobs.conf import settings
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.errors import ConfigurationError
from pulljobs.handlers import ClaimedJob, Handler
from pulljobs.models import Consumer, FlowBucket, FlowKey, Job
from pulljobs.models.fields import ClockTime
from pulljobs.pulling import Claim, Puller
from pulljobs.states import State
from pulljobs.storage import progress
from pulljobs.storage.rows import HeldJob, JobView, StoredMessage, Taken
from pulljobs.testing.arguments import check_count
from pulljobs.testing.recording import record
from pulljobs.worker import executor, transactions
from pulljobs.worker.flusher import BACK_TO_QUEUE
from pulljobs.worker.give_up_hooks import call_give_up_hook
from pulljobs.worker.renewer import renew_now
from pulljobs.worker.subscriptions import chosen_handlers

BATCH: Final = 100
"""Largest number of jobs of one claim."""


class DrainedJob(NamedTuple):
    """Run of one handler by `drain`, and the job afterwards."""

    channel: str
    consumer: str
    payload: bytes
    job: JobView
    """The job after the run: state, reason, retry_count, error, result, ..."""
    exception: BaseException | None
    """Exception that the handler raised, or None."""


def drain(
    channel: str | None = None,
    consumer: str | None = None,
    *,
    delayed: bool = False,
    rounds: int = 100,
) -> list[DrainedJob]:
    """Run the handlers of all ready jobs, and of jobs that become ready then, until none is left.

    Each job is claimed, run and settled as a worker does it. Return one item for each run of a
    handler, in the order of the runs. With `delayed`, jobs that are due later, because they were
    published with a delay or wait for a retry, run at once. Sleeps of workflows then end, and their
    waits time out.

    In a round, each consumer's ready jobs run once, up to 100. Raise AssertionError if jobs are
    still ready after so many `rounds`. A round does not count if it is the first to run a job that
    existed at the start. Raise ConfigurationError if no handler serves the channel and consumer.
    """
    check_count("rounds", rounds)
    handlers.autodiscover()
    sources = _sources(channel, consumer)
    waiting = set(Job.objects.using(settings().DATABASE).values_list("id", flat=True))
    drained, left = list[DrainedJob](), rounds
    while True:
        new = [run for source in sources for run in _drain_round(*source, delayed)]
        has_stepped = [hooks.load(step)(settings().DATABASE) for step in hooks.drain_steps]
        if not new and not any(has_stepped):
            return drained
        drained += new
        done = {run.job.id for run in new}
        left -= waiting.isdisjoint(done)
        waiting -= done
        if left < 1 and any(_is_ready(puller, delayed) for puller, _handler in sources):
            raise AssertionError(
                f"Jobs are still ready after {rounds} rounds: a handler that always asks for a "
                "retry, or publishes to its own channel, never ends."
            )


def _sources(channel: str | None, consumer: str | None) -> list[tuple[Puller, Handler]]:
    rows = zip(handlers.sync_consumers(), chosen_handlers(push=False), strict=True)
    chosen = [
        (Puller(settings().DATABASE, row), handler)
        for row, handler in rows
        if channel in (None, handler.channel) and consumer in (None, handler.consumer)
    ]
    if not chosen:
        raise ConfigurationError(
            f"No handler serves channel {channel or 'any'!r}, consumer {consumer or 'any'!r}: "
            "register one with @pulljobs.handlers.handler."
        )
    return chosen


def _drain_round(puller: Puller, handler: Handler, delayed: bool) -> list[DrainedJob]:
    claim = claim_ready(puller, BATCH, delayed=delayed)
    return [
        run_claimed(puller.consumer, handler, claim.taken, row, message)
        for row, message in claim.jobs
        if claim.taken is not None
    ]


def _is_ready(puller: Puller, delayed: bool) -> bool:
    """Return True if a job, or with `delayed` one that is due later, can be claimed. Claim none."""
    with transaction.atomic(using=puller.using):
        claim = claim_ready(puller, 1, delayed=delayed)
        transaction.set_rollback(True, using=puller.using)
    return bool(claim.jobs)


def claim_ready(puller: Puller, wanted: int, *, delayed: bool = False) -> Claim:
    """Claim at most `wanted` ready jobs of a consumer, as if its rate limits had all their tokens.

    With `delayed`, jobs that are due later are made due first.
    """
    if delayed:
        _make_due(puller.consumer)
    _fill_buckets(puller)
    return puller.claim(wanted)


def _fill_buckets(puller: Puller) -> None:
    """Fill the rate limits of a consumer, of its keys that are not throttled, and of all groups."""
    buckets = FlowBucket.objects.using(puller.using)
    buckets.filter(Q(consumer_id=puller.consumer.pk) | ~Q(group_id=0)).delete()
    keys = FlowKey.objects.using(puller.using)
    short = keys.filter(consumer_id=puller.consumer.pk, tokens__isnull=False)
    short = short.exclude(throttled_until__gt=ClockTime())
    # The turn of a key that is short of tokens comes with its next token.
    late = short.filter(turn_at__gt=ClockTime())
    late.update(turn_at=ClockTime())
    short.update(tokens=None, filled_at=None)


def _make_due(consumer: Consumer) -> None:
    """Make the consumer's jobs due that wait for nothing but their time.

    Jobs of workflows that sleep or wait are handled by their app, in `hooks.drain_jumps`.
    """
    later = Job.objects.using(settings().DATABASE).filter(
        consumer=consumer, state=State.QUEUED, available_at__gt=Now()
    )
    waiting = [id for jump in hooks.drain_jumps for id in hooks.load(jump)(later)]
    later.exclude(id__in=waiting).update(available_at=Now())


def run_claimed(
    consumer: Consumer, handler: Handler, taken: Taken, row: HeldJob, message: StoredMessage
) -> DrainedJob:
    """Run the handler of a claimed job, settle the job, and return it with the handler's error."""
    recorded = record(handler)
    grant = Grant(
        handler=handlers.traced(replace(handler, function=recorded)),
        lease_duration=consumer.lease_duration,
        claimed_at=time.monotonic(),
        renew=renew_now,
        stopping=lambda: False,
    )
    job = ClaimedJob(row, message, Held(row.id, taken.lease_token), grant)
    with _usable_transactions():
        settlement = executor.perform(job)
    progress.write(settings().DATABASE)
    if (job.went_to if settlement is None else _finish(job, settlement)) is State.DEAD:
        with _usable_transactions():
            call_give_up_hook(job)
    return DrainedJob(
        handler.channel, handler.consumer, message.payload, jobs.get(row.id), recorded.exception
    )


def _finish(job: ClaimedJob, settlement: Settlement) -> State | None:
    """Write the outcome. Return the job's new state if the outcome may queue the job again.

    That is DEAD for a retry when none is left. Return None for other outcomes, and if the lease is
    lost.
    """
    finished = pulling.finish([settlement], lambda: {job.id: job.handler.names})
    return finished.states.get(job.id) if settlement.event in BACK_TO_QUEUE else None


@contextmanager
def _usable_transactions() -> Iterator[None]:
    with ExitStack() as stack:
        for using in transactions.databases():
            stack.enter_context(_usable_transaction(using))
        yield


@contextmanager
def _usable_transaction(using: str) -> Iterator[None]:
    """Roll back what the block wrote if it left the test's transaction broken.

    Nothing is done outside of a transaction.
    """
    connection = connections[using]
    if not connection.in_atomic_block:
        yield
        return
    # By the connection: newer versions of Django have another name for `transaction.savepoint`.
    before = connection.savepoint() or ""  # Never empty inside a transaction.
    yield
    if transactions.is_broken(using):
        connection.set_rollback(False)
        connection.savepoint_rollback(before)
    else:
        connection.savepoint_commit(before)
