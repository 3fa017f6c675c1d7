"""What became of jobs, told of each consumer: once it is committed, and a batch at a time."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from django.db import connections

from pulljobs import ids
from pulljobs.engine import tracing
from pulljobs.engine.outcomes import Settlement
from pulljobs.engine.telemetry import (
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
from pulljobs.storage.rows import Finished, HeldJob, StoredMessage

Place = tuple[str, str]
"""Channel and consumer."""
Places = Callable[[], Mapping[int, Place]]
"""Of jobs by their ids; asked for only if somebody wants to know."""
NOT_KNOWN: Final = ("", "")


def nobody() -> Mapping[int, Place]:
    return {}


def of(consumer: Consumer, settlements: Sequence[Settlement]) -> Places:
    """All of them are that consumer's."""
    return lambda: {one.held.job_id: place_of(consumer) for one in settlements}


def place_of(consumer: Consumer) -> Place:
    return consumer.channel.name, consumer.name


def claimed(using: str, consumer: Consumer, jobs: Sequence[HeldJob], at: datetime) -> None:
    """`at` by the database's clock."""
    if is_counting():
        waits = [
            (at - ids.time_of(job.message_id)).total_seconds()
            for job in jobs
            if job.deliveries == 1
        ]
        tell(using, JobsClaimed(*place_of(consumer), len(jobs), waits))


def traced(consumer: Consumer, jobs: Sequence[tuple[HeldJob, StoredMessage]], began: int) -> None:
    """A claim that brought these; `began` as `tracing.now` told it, 0: nobody traces."""
    if began:
        headers = [message.headers for _job, message in jobs]
        tracing.claimed(*place_of(consumer), headers, began=began)


def taken(using: str, consumer: Consumer) -> None:
    """One, by its id."""
    if is_counting():
        tell(using, JobsClaimed(*place_of(consumer), 1))


def finished(using: str, settlements: Sequence[Settlement], done: Finished, places: Places) -> None:
    if not (done.lost or done.refused or (done.states and is_counting())):
        return
    known = places()
    for place, ends in _ends(settlements, done, known).items():
        tell(using, JobsFinished(ends, *place))
    for place, lost in Counter(known.get(id, NOT_KNOWN) for id in done.lost).items():
        tell(using, LeasesLost(lost, *place))
    for id, error in done.refused.items():
        tell(using, JobRefused(id, *known.get(id, NOT_KNOWN), error))


def given_back(using: str, done: Finished) -> None:
    """Jobs that went back without their holder's word: as released, else as expired."""
    rows = Job.objects.using(using).filter(id__in=done.states)
    known = {id: (channel, consumer) for id, channel, consumer in rows.values_list("id", *_PLACE)}
    expired: defaultdict[Place, Counter[str]] = defaultdict(Counter)
    released: defaultdict[Place, Counter[tuple[str, str]]] = defaultdict(Counter)
    for id, state in done.states.items():
        place = known.get(id, NOT_KNOWN)
        if id in done.released:
            released[place][Event.RELEASE, state] += 1
        else:
            expired[place][state] += 1
    for place, states in expired.items():
        tell(using, JobsExpired(*place, states))
    for place, ends in released.items():
        tell(using, JobsFinished(ends, *place))


_PLACE: Final = ("consumer__channel__name", "consumer__name")


def _ends(
    settlements: Sequence[Settlement], done: Finished, known: Mapping[int, Place]
) -> Mapping[Place, Counter[tuple[str, str]]]:
    """What was settled before, and is only said again, has been counted."""
    ends: defaultdict[Place, Counter[tuple[str, str]]] = defaultdict(Counter)
    for one in settlements:
        id = one.held.job_id
        if (state := done.states.get(id)) is not None and id not in done.repeated:
            ends[known.get(id, NOT_KNOWN)][one.event, state] += 1
    return ends


def tell(using: str, event: object) -> None:
    """At once in a transaction that is managed by hand: nobody hears its commit."""
    connection = connections[using]
    if connection.in_atomic_block:
        connection.on_commit(partial(emit, event))
    else:
        emit(event)
