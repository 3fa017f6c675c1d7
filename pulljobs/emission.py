"""Telemetry of claims and settlements: one event per consumer and write, after the commit."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from django.db import connections

from pulljobs import ids
from pulljobs.engine import tracing
from pulljobs.engine.claiming.rows import LIMITS
from pulljobs.engine.outcomes import Settlement
from pulljobs.engine.telemetry import (
    ClaimLimited,
    JobRefused,
    JobsClaimed,
    JobsExpired,
    JobsFinished,
    LeasesLost,
    emit,
    is_counting,
)
from pulljobs.models import Consumer, Job
from pulljobs.states import Event
from pulljobs.storage.protocol import ConsumerNames
from pulljobs.storage.rows import Finished, HeldJob, NotYet, Refusal, StoredMessage
from pulljobs.storage.transactions import after_commit

FindNames = Callable[[], Mapping[int, ConsumerNames]]
"""Function that returns names of channel and consumer by job id, called if an event needs them."""
UNKNOWN: Final = ("", "")
_NAMES: Final = ("consumer__channel__name", "consumer__name")


def no_names() -> Mapping[int, ConsumerNames]:
    """Return an empty mapping, for callers whose events need not name channel and consumer."""
    return {}


def names_by_job(consumer: Consumer, settlements: Sequence[Settlement]) -> FindNames:
    """Return a function for events, which returns the names of channel and consumer by job id."""
    return lambda: {settlement.held.job_id: consumer.names for settlement in settlements}


def emit_claimed(using: str, consumer: Consumer, jobs: Sequence[HeldJob], at: datetime) -> None:
    """Emit the event of a claim. `at` is the time of the claim by the database's clock."""
    if is_counting():
        waits = [
            (at - ids.time_of(job.message_id)).total_seconds()
            for job in jobs
            if job.deliveries == 1
        ]
        emit_on_commit(using, JobsClaimed(*consumer.names, len(jobs), waits))


def trace_claimed(
    consumer: Consumer, jobs: Sequence[tuple[HeldJob, StoredMessage]], began: int
) -> None:
    """Record the span of a claim that got these jobs, with links to the publishes of the messages.

    `began` is the result of `tracing.now` before the claim, and 0 if tracing is off.
    """
    if began:
        headers = [message.headers for _job, message in jobs]
        tracing.claimed(*consumer.names, headers, began=began)


def emit_taken(using: str, consumer: Consumer) -> None:
    """Emit the event of a claim of one job by its id."""
    if is_counting():
        emit_on_commit(using, JobsClaimed(*consumer.names, 1))


def emit_limited(using: str, consumer: Consumer, refusal: Refusal | NotYet | None) -> None:
    """Emit ClaimLimited if a limit of the consumer kept a claim from getting more jobs.

    `refusal` is the reason why the claim got no more. Other reasons emit nothing.
    """
    reason = refusal.reason if isinstance(refusal, NotYet) else refusal
    seconds = refusal.next_due.total_seconds() if isinstance(refusal, NotYet) else 0.0
    if reason in LIMITS and is_counting():
        emit_on_commit(using, ClaimLimited(*consumer.names, str(reason), seconds))


def emit_finished(
    using: str, settlements: Sequence[Settlement], done: Finished, find_names: FindNames
) -> None:
    """Emit the events of a write of outcomes: settlements, lost leases and refused outcomes."""
    if not (done.lost or done.refused or (done.states and is_counting())):
        return
    known = _find(using, find_names)
    for names, ends in _ends(settlements, done, known).items():
        emit_on_commit(using, JobsFinished(ends, *names))
    for names, lost in Counter(known.get(id, UNKNOWN) for id in done.lost).items():
        emit_on_commit(using, LeasesLost(lost, *names))
    _emit_refused(using, done, known)


def emit_given_back(using: str, done: Finished) -> None:
    """Emit the events of jobs that expired, or that were released for the node that held them.

    Jobs that could not be written have an event, too.
    """
    known = _find(using, lambda: _read_names(using, {*done.states, *done.refused}))
    expired: defaultdict[ConsumerNames, Counter[str]] = defaultdict(Counter)
    released: defaultdict[ConsumerNames, Counter[tuple[str, str]]] = defaultdict(Counter)
    for id, state in done.states.items():
        names = known.get(id, UNKNOWN)
        if id in done.released:
            released[names][Event.RELEASE, state] += 1
        else:
            expired[names][state] += 1
    for names, states in expired.items():
        emit_on_commit(using, JobsExpired(*names, states))
    for names, ends in released.items():
        emit_on_commit(using, JobsFinished(ends, *names))
    _emit_refused(using, done, known)


def _emit_refused(using: str, done: Finished, known: Mapping[int, ConsumerNames]) -> None:
    for id, error in done.refused.items():
        emit_on_commit(using, JobRefused(id, *known.get(id, UNKNOWN), error))


def _find(using: str, find_names: FindNames) -> Mapping[int, ConsumerNames]:
    """Return names of channel and consumer by job id, or {} if the query fails after a commit.

    In the caller's transaction its error is raised.
    """
    known: dict[int, ConsumerNames] = {}
    with after_commit(using, "the search for the names of consumers"):
        known |= find_names()
    return known


def _read_names(using: str, job_ids: Collection[int]) -> dict[int, ConsumerNames]:
    rows = Job.objects.using(using).filter(id__in=job_ids).values_list("id", *_NAMES)
    return {id: (channel, consumer) for id, channel, consumer in rows}


def _ends(
    settlements: Sequence[Settlement], done: Finished, known: Mapping[int, ConsumerNames]
) -> Mapping[ConsumerNames, Counter[tuple[str, str]]]:
    """Count the written outcomes of each consumer by event and new state of the job.

    Repeated settlements are left out: they were counted the first time.
    """
    ends: defaultdict[ConsumerNames, Counter[tuple[str, str]]] = defaultdict(Counter)
    for settlement in settlements:
        id = settlement.held.job_id
        if (state := done.states.get(id)) is not None and id not in done.repeated:
            ends[known.get(id, UNKNOWN)][settlement.event, state] += 1
    return ends


def emit_on_commit(using: str, event: object) -> None:
    """Emit the event once the caller's `atomic` block is committed, or at once outside of one.

    In a transaction that the caller manages without `atomic`, the event is emitted at once as well,
    because Django does not report its commit.
    """
    connection = connections[using]
    if connection.in_atomic_block:
        connection.on_commit(partial(emit, event))
    else:
        emit(event)
