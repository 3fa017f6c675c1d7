"""Taking jobs under leases and settling them: the one way in for every door."""

import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connections

from pulljobs.conf import settings
from pulljobs.floors import Entry, Floors
from pulljobs.models import Consumer, Lease
from pulljobs.outcomes import Held, Settlement
from pulljobs.states import Event, State
from pulljobs.storage import jobs, keys, limits, listen, messages, statements
from pulljobs.storage.limits import Guards
from pulljobs.storage.rows import Claimed, Finished, HeldJob, Refusal, StoredMessage, Taken
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
    """When nothing more is there: how long until something falls due or a pause ends, if known."""
    refusal: Refusal | None = None
    """What kept it from more: DELETED, PAUSED, MAX_IN_FLIGHT or MAX_BYTES."""


class Wish(NamedTuple):
    """What a caller asks of a claim."""

    wanted: int
    lease: timedelta | None
    max_bytes: int | None
    request_id: str | None


@dataclass(slots=True)
class Puller:
    """Claims for one consumer from one process, remembering where the last claim ended."""

    using: str
    consumer: Consumer
    door: str = Lease.Door.WORKER
    node_id: UUID | None = None
    timeout: timedelta = timedelta()
    """Of the handler; leases can be renewed so long at least."""
    _floors: Floors = field(default_factory=Floors)
    _session: weakref.ref[object] | None = None
    _guards: Guards = field(default_factory=Guards)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def claim(
        self,
        wanted: int,
        *,
        lease: timedelta | None = None,
        max_bytes: int | None = None,
        request_id: str | None = None,
    ) -> Claim:
        """Up to `wanted` jobs under one new lease (None: of the consumer's length).

        `max_bytes` bounds payloads and headers together: the first job that does not fit stays as
        it is. A second claim under a `request_id` gets what the first one's lease still holds, and
        nothing more while there is that lease.
        """
        wish = Wish(wanted, lease, max_bytes, request_id)
        while True:
            if (before := self._claimed_before(wish)) is not None:
                return before
            with self._lock:
                claimed = self._claim(wish)
            if claimed.refusal is not Refusal.REPEATED:
                return self._told(claimed, wanted)

    def _claimed_before(self, wish: Wish) -> Claim | None:
        if wish.request_id is None:
            return None
        found = jobs.requested(self.using, self.consumer.pk, wish.request_id)
        if found is None:
            return None
        taken, held = found
        return Claim(taken, _with_messages(self.using, held), more=False, next_due=None)

    def _told(self, claimed: Claimed, wanted: int) -> Claim:
        if claimed.taken is None:
            more = claimed.refusal is None and (claimed.more or self._floors.below is not None)
            return Claim(None, [], more, claimed.next_due, claimed.refusal)
        emit(JobsClaimed(self.consumer.name, len(claimed.jobs)))
        together = _with_messages(self.using, claimed.jobs)
        more = claimed.more or len(together) == wanted
        return Claim(claimed.taken, together, more, claimed.next_due, claimed.refusal)

    def _claim(self, wish: Wish) -> Claimed:
        if connections[self.using].in_atomic_block:
            # What a transaction claims it may give back by a rollback: nothing to remember.
            return self._run(FROM_THE_HEAD, wish)
        session = statements.session(self.using)
        if self._session is None or self._session() is not session:
            self._floors.forget()
            self._session = weakref.ref(session)
        if self._floors.below is not None:
            claimed = self._claim_below(wish)
            if claimed.taken is not None:
                return claimed
        claimed = self._run(self._floors.entry_above(), wish)
        self._floors.learn(
            started_at=claimed.started_at,
            snapshot=claimed.snapshot,
            xid=claimed.xid,
            reached=claimed.reached,
        )
        return claimed

    def _claim_below(self, wish: Wish) -> Claimed:
        started = time.monotonic()
        claimed = self._run(self._floors.entry_below(), wish)
        took = timedelta(seconds=time.monotonic() - started)
        self._floors.learn_below(
            started_at=claimed.started_at,
            full=claimed.refusal is not None or len(claimed.jobs) == wish.wanted,
            passed=claimed.passed,
            took=took,
        )
        return claimed

    @property
    def max_lease(self) -> timedelta:
        return max(settings().MAX_LEASE, self.timeout)

    def _run(self, entry: Entry, wish: Wish) -> Claimed:
        terms = {
            "entry": entry,
            "node_id": self.node_id,
            "door": self.door,
            "lease": wish.lease,
            "max_lease": self.max_lease,
            "request_id": wish.request_id,
        }
        claim = partial(self._run_guarded, terms)
        if wish.max_bytes is None:
            return claim(wish.wanted)
        return limits.fitting(self.using, wish.wanted, wish.max_bytes, claim)

    def _run_guarded(self, terms: dict[str, Any], wanted: int) -> Claimed:
        """What claims have to mind is seen by trying, for it may change at any time."""
        using, consumer_id = self.using, self.consumer.pk
        while True:
            way: Callable[..., Claimed] = keys.claim if self._guards.exclusive else jobs.claim
            claim = partial(way, using, consumer_id, **terms)
            if self._guards.bounded:
                claimed = limits.claim(using, consumer_id, wanted, partial(claim, guarded=True))
            else:
                claimed = claim(wanted)
            if claimed is not None and claimed.refusal is not Refusal.UNGUARDED:
                return claimed
            self._guards = limits.guards(using, consumer_id)


def _with_messages(using: str, held: list[HeldJob]) -> list[tuple[HeldJob, StoredMessage]]:
    if not held:
        return []
    read = messages.read(using, [job.message_id for job in held])
    return [(job, read[job.message_id]) for job in held]


def take(
    consumer: Consumer, job_id: int, source: State, *, incremental_timeout: timedelta | None = None
) -> Taken | Refusal | None:
    """One job by its id, as a job POST does; None: not in that state, or not this consumer's."""
    lease = consumer.protocol_lease or settings().PROTOCOL_LEASE
    using = settings().DATABASE
    take = partial(
        jobs.take,
        using,
        consumer.pk,
        job_id,
        source=source,
        lease=lease + (incremental_timeout or timedelta()),
        max_lease=settings().MAX_LEASE,
        door=Lease.Door.POST,
        incremental_timeout=incremental_timeout,
    )
    taken = take()
    if taken is Refusal.UNGUARDED:
        taken = limits.take(using, consumer.pk, job_id, partial(take, guarded=True))
    if isinstance(taken, Taken):
        emit(JobsClaimed(consumer.name, 1))
    return taken


def renew(
    held: Sequence[Held],
    lease: timedelta | None = None,
    *,
    running: Collection[int] | None = None,
) -> dict[Held, datetime]:
    """New deadlines; what is missing in the answer is lost. A worker says which are running."""
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
    listen.wake_on_commit(settings().DATABASE, finished.roomier)
    return finished


def reap() -> int | None:
    """Expire a batch of leases that are over: how many jobs went back or died; None: no leases."""
    return _told(jobs.reap(settings().DATABASE, REAPED_LEASES))


def sweep_keys() -> None:
    """Free the keys of jobs that ended with whoever was about to free them."""
    while keys.sweep(settings().DATABASE):
        pass


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
        listen.wake_on_commit(settings().DATABASE, finished.roomier)
        _wake_for({id for id, state in finished.states.items() if state is State.QUEUED})
    return len(finished.states)


def _wake_for(job_ids: Collection[int]) -> None:
    """Somebody may be waiting for what came back."""
    if job_ids:
        using = settings().DATABASE
        listen.wake_on_commit(using, jobs.consumers_of(using, job_ids))
