"""Taking jobs under leases and settling them: the one way in for every door."""

import threading
import time
import weakref
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import connections

from pulljobs.conf import settings
from pulljobs.floors import Entry, Floors
from pulljobs.models import Consumer, Lease
from pulljobs.outcomes import Held, Settlement
from pulljobs.states import Event, State
from pulljobs.storage import jobs, listen, messages, statements
from pulljobs.storage.rows import Finished, HeldJob, StoredMessage, Taken
from pulljobs.telemetry import JobRefused, JobsClaimed, JobsExpired, JobsFinished, LeasesLost, emit

REAPED_LEASES = 20
FROM_THE_HEAD = Floors().entry_above()


class Claim(NamedTuple):
    """Jobs with their messages, in the order claimed; empty with `taken` None."""

    taken: Taken | None
    jobs: list[tuple[HeldJob, StoredMessage]]
    more: bool
    """There may be more right now."""
    next_due: timedelta | None
    """When nothing more is there: how long until something falls due, if it is known."""


@dataclass(slots=True)
class Puller:
    """Claims for one consumer from one process, remembering where the last claim ended."""

    using: str
    consumer: Consumer
    door: str = Lease.Door.WORKER
    node_id: UUID | None = None
    _floors: Floors = field(default_factory=Floors)
    _session: weakref.ref[object] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def claim(self, wanted: int, *, lease: timedelta | None = None) -> Claim:
        """Up to `wanted` jobs under one new lease (None: of the consumer's length)."""
        with self._lock:
            claimed = self._claim(wanted, lease)
        if claimed.taken is None:
            return Claim(None, [], self._floors.below is not None, claimed.next_due)
        emit(JobsClaimed(self.consumer.name, len(claimed.jobs)))
        read = messages.read(self.using, [job.message_id for job in claimed.jobs])
        together = [(job, read[job.message_id]) for job in claimed.jobs]
        return Claim(claimed.taken, together, len(together) == wanted, claimed.next_due)

    def _claim(self, wanted: int, lease: timedelta | None) -> jobs.Claimed:
        if connections[self.using].in_atomic_block:
            # What a transaction claims it may give back by a rollback: nothing to remember.
            return self._run(FROM_THE_HEAD, wanted, lease)
        session = statements.session(self.using)
        if self._session is None or self._session() is not session:
            self._floors.forget()
            self._session = weakref.ref(session)
        if self._floors.below is not None:
            claimed = self._claim_below(wanted, lease)
            if claimed.taken is not None:
                return claimed
        claimed = self._run(self._floors.entry_above(), wanted, lease)
        self._floors.learn(
            started_at=claimed.started_at,
            snapshot=claimed.snapshot,
            xid=claimed.xid,
            reached=claimed.reached,
        )
        return claimed

    def _claim_below(self, wanted: int, lease: timedelta | None) -> jobs.Claimed:
        started = time.monotonic()
        claimed = self._run(self._floors.entry_below(), wanted, lease)
        took = timedelta(seconds=time.monotonic() - started)
        self._floors.learn_below(
            started_at=claimed.started_at,
            full=len(claimed.jobs) == wanted,
            passed=claimed.passed,
            took=took,
        )
        return claimed

    def _run(self, entry: Entry, wanted: int, lease: timedelta | None) -> jobs.Claimed:
        return jobs.claim(
            self.using,
            self.consumer.pk,
            wanted,
            entry=entry,
            node_id=self.node_id,
            door=self.door,
            lease=lease,
            max_lease=settings().MAX_LEASE,
        )


def take(
    consumer: Consumer, job_id: int, source: State, *, incremental_timeout: timedelta | None = None
) -> Taken | None:
    """One job by its id, as a job POST does; None: not in that state, or not this consumer's."""
    lease = consumer.protocol_lease or settings().PROTOCOL_LEASE
    taken = jobs.take(
        settings().DATABASE,
        consumer.pk,
        job_id,
        source=source,
        lease=lease + (incremental_timeout or timedelta()),
        max_lease=settings().MAX_LEASE,
        door=Lease.Door.POST,
        incremental_timeout=incremental_timeout,
    )
    if taken is not None:
        emit(JobsClaimed(consumer.name, 1))
    return taken


def renew(
    held: Sequence[Held],
    lease: timedelta | None = None,
    *,
    running: Collection[int] | None = None,
) -> dict[Held, datetime]:
    """New deadlines; what is missing in the answer is lost. A worker says which ones are running."""
    return jobs.renew(settings().DATABASE, held, lease, running=running)


def finish(settlements: Sequence[Settlement]) -> Finished:
    """Write outcomes; losses and refusals are told in the answer and as events."""
    finished = jobs.finish(settings().DATABASE, settlements)
    if finished.states:
        emit(JobsFinished(Counter(finished.states.values())))
    if finished.lost:
        emit(LeasesLost(len(finished.lost)))
    for job_id, error in finished.refused.items():
        emit(JobRefused(job_id, error))
    released = {one.held.job_id for one in settlements if one.event is Event.RELEASE}
    _wake_for(released & finished.states.keys())
    return finished


def reap() -> int | None:
    """Expire a batch of leases that are over: how many jobs went back or died; None: no leases."""
    return _told(jobs.reap(settings().DATABASE, REAPED_LEASES))


def abandon(node_id: UUID, started: frozenset[int]) -> int | None:
    """Give back what a node holds that is dead for sure; only what it had started is charged."""
    return _told(jobs.abandon(settings().DATABASE, node_id, started))


def give_back(node_id: UUID, *, but: frozenset[UUID]) -> None:
    """Release unharmed what a living node holds under other leases than these."""
    _told(jobs.abandon(settings().DATABASE, node_id, frozenset(), but=but))


def _told(finished: Finished | None) -> int | None:
    if finished is None:
        return None
    if finished.states:
        emit(JobsExpired(Counter(map(str, finished.states.values()))))
        _wake_for({id for id, state in finished.states.items() if state is State.QUEUED})
    return len(finished.states)


def _wake_for(job_ids: Collection[int]) -> None:
    """Somebody may be waiting for what came back."""
    if job_ids:
        using = settings().DATABASE
        listen.wake_on_commit(using, jobs.consumers_of(using, job_ids))
