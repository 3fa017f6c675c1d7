"""Taking jobs under leases and settling them: the one way in for every door."""

import threading
import weakref
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from django.db import connections

from pulljobs import telling
from pulljobs.conf import settings
from pulljobs.engine import tracing
from pulljobs.engine.claiming.claimer import Claimer
from pulljobs.engine.claiming.rows import Terms
from pulljobs.engine.low_water_marks import Entry, LowWaterMarks
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.models import Consumer, Lease
from pulljobs.states import State
from pulljobs.storage import jobs, keys, limits, listen, messages, statements
from pulljobs.storage.rows import Claimed, Finished, HeldJob, Refusal, StoredMessage, Taken
from pulljobs.storage.statements import AliasSession, Row
from pulljobs.telling import Places

REAPED_LEASES = 20
FEW: Final = 10
"""Jobs of a claim with which their messages come along."""
FROM_THE_HEAD = LowWaterMarks().entry_above()


class Claim(NamedTuple):
    """Jobs with their messages, in the order claimed; empty with `taken` None, or when repeated."""

    taken: Taken | None
    jobs: list[tuple[HeldJob, StoredMessage]]
    more: bool
    """There may be more right now."""
    next_due: timedelta | None
    """When nothing more is there: how long until something falls due or a pause ends, if known."""
    refusal: Refusal | None = None
    """What kept it from more: DELETED, PAUSED, MAX_IN_FLIGHT or MAX_BYTES."""
    repeated: bool = False
    """Others were told of it, too: nobody who asked may cut it or give it back."""

    @property
    def is_spent(self) -> bool:
        """It repeats one of which nothing is held any more: that says nothing of what waits."""
        return self.taken is not None and not self.jobs


class Wish(NamedTuple):
    """What a caller asks of a claim."""

    wanted: int
    lease_duration: timedelta | None
    max_bytes: int | None
    request_id: str | None


@dataclass(slots=True)
class Puller:
    """Claims for one consumer from one process, remembering where the last claim ended."""

    using: str
    consumer: Consumer
    via: str = Lease.Via.WORKER
    node_id: UUID | None = None
    timeout: timedelta = timedelta()
    """Of the handler; leases can be renewed so long at least."""
    _session: weakref.ref[object] | None = None
    _server: datetime | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _claimer: Claimer = field(init=False)
    _is_small: bool = False
    """The last claim was, so the next one may well be."""

    def __post_init__(self) -> None:
        self._claimer = Claimer(self.consumer.pk)

    def claim(
        self,
        wanted: int,
        *,
        lease_duration: timedelta | None = None,
        max_bytes: int | None = None,
        request_id: str | None = None,
    ) -> Claim:
        """Up to `wanted` jobs under one new lease (None: of the consumer's length).

        `max_bytes` bounds payloads and headers together: the first job that does not fit stays as
        it is. A second claim under a `request_id` gets what the first one's lease still holds, and
        nothing more while there is that lease.
        """
        wish = Wish(wanted, lease_duration, max_bytes, request_id)
        began = tracing.now()
        while True:
            if request_id is not None:
                before = claimed_before(self.using, self.consumer.pk, request_id)
                if before is not None:
                    return before
            with self._lock:
                claimed = self._claim(wish)
            if claimed.refusal is not Refusal.REPEATED:
                return self._told(claimed, wanted, began)

    def _told(self, claimed: Claimed, wanted: int, began: int) -> Claim:
        if claimed.taken is None:
            more = claimed.refusal is None and (
                claimed.more or self._claimer.marks.below is not None
            )
            return Claim(None, [], more, claimed.next_due, claimed.refusal)
        telling.claimed(self.using, self.consumer, claimed.jobs, claimed.started_at)
        self._is_small = len(claimed.jobs) <= FEW
        together = _with_messages(self.using, claimed.jobs, claimed.messages)
        telling.traced(self.consumer, together, began)
        more = claimed.more or len(together) == wanted
        return Claim(claimed.taken, together, more, claimed.next_due, claimed.refusal)

    def _claim(self, wish: Wish) -> Claimed:
        look = partial(self._run, wish)
        if connections[self.using].in_atomic_block:
            # What a transaction claims it may give back by a rollback: nothing to remember.
            return look(FROM_THE_HEAD)
        if self._is_elsewhere():
            self._claimer.marks.forget()
        return self._claimer.walk(wish.wanted, look)

    def _is_elsewhere(self) -> bool:
        """Its last claim was on another connection or, behind a pooler, on another server."""
        session = statements.session(self.using)
        pooled = statements.behind_pooler(self.using)
        server = statements.server_start(self.using) if pooled else None
        before = self._session and self._session(), self._server
        self._session, self._server = weakref.ref(session), server
        return before != (session, server)

    @property
    def max_lease(self) -> timedelta:
        return max(settings().MAX_LEASE, self.timeout)

    def _run(self, wish: Wish, entry: Entry) -> Claimed:
        terms = Terms(self.via, self.max_lease, self.node_id, wish.lease_duration, wish.request_id)
        if self._is_small:
            terms = terms._replace(few=FEW)
        session = AliasSession(self.using)

        def claim(wanted: int) -> Claimed:
            return self._claimer.claim(session, wanted, terms, entry)

        if wish.max_bytes is None:
            return claim(wish.wanted)
        return limits.fitting(self.using, wish.wanted, wish.max_bytes, claim)


def claimed_before(using: str, consumer_id: int, request_id: str) -> Claim | None:
    """What is still held of the claim under that request id; None: there is no such claim."""
    found = jobs.requested(using, consumer_id, request_id)
    if found is None:
        return None
    taken, held = found
    together = _with_messages(using, held)
    return Claim(taken, together, more=False, next_due=None, repeated=True)


def _with_messages(
    using: str, held: list[HeldJob], rows: Sequence[Row] = ()
) -> list[tuple[HeldJob, StoredMessage]]:
    ids, read = [job.message_id for job in held], messages.by_id(rows)
    if unread := [id for id in ids if id not in read]:
        read |= messages.read(using, unread)
    return list(zip(held, map(read.__getitem__, ids), strict=True))


def take(
    consumer: Consumer, job_id: int, source: State, *, incremental_timeout: timedelta | None = None
) -> Taken | Refusal | None:
    """One job by its id, as a job POST does; None: not in that state, or not this consumer's."""
    lease = consumer.protocol_lease_duration or settings().PROTOCOL_LEASE
    using = settings().DATABASE
    take = partial(
        jobs.take,
        using,
        consumer.pk,
        job_id,
        source=source,
        lease_duration=lease + (incremental_timeout or timedelta()),
        max_lease=settings().MAX_LEASE,
        via=Lease.Via.POST,
        incremental_timeout=incremental_timeout,
    )
    taken = take()
    if taken is Refusal.UNGUARDED:
        taken = limits.take(using, consumer.pk, job_id, partial(take, guarded=True))
    if isinstance(taken, Taken):
        telling.taken(using, consumer)
    return taken


def renew(
    held: Sequence[Held],
    lease_duration: timedelta | None = None,
    *,
    running: Collection[int] | None = None,
) -> dict[Held, datetime]:
    """New deadlines; what is missing in the answer is lost. A worker says which are running."""
    return jobs.renew(settings().DATABASE, held, lease_duration, running=running)


def finish(settlements: Sequence[Settlement], places: Places = telling.nobody) -> Finished:
    """Write outcomes; losses and refusals are told in the answer and as events.

    `places` says whose jobs they are, for those who count.
    """
    finished = jobs.finish(settings().DATABASE, settlements)
    telling.finished(settings().DATABASE, settlements, finished, places)
    _wake_for(finished.released)
    listen.wake_on_commit(settings().DATABASE, finished.roomier)
    return finished


def reap() -> int | None:
    """Expire a batch of leases that are over: how many jobs went back or died; None: no leases."""
    return _told(jobs.reap(settings().DATABASE, REAPED_LEASES))


def sweep_keys() -> bool:
    """Free some keys of jobs that ended with whoever was about to; whether there may be more."""
    return keys.sweep(settings().DATABASE)


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
        telling.given_back(settings().DATABASE, finished)
        listen.wake_on_commit(settings().DATABASE, finished.roomier)
        _wake_for({id for id, state in finished.states.items() if state is State.QUEUED})
    return len(finished.states)


def _wake_for(job_ids: Collection[int]) -> None:
    """Somebody may be waiting for what came back."""
    if job_ids:
        using = settings().DATABASE
        listen.wake_on_commit(using, jobs.consumers_of(using, job_ids))
