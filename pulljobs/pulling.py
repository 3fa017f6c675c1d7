"""Claiming jobs under leases and settling them, for the worker, the HTTP API and push delivery."""

import threading
import weakref
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from pulljobs import emission
from pulljobs.conf import settings
from pulljobs.emission import FindNames
from pulljobs.engine import tracing
from pulljobs.engine.claiming import plain
from pulljobs.engine.claiming.claimer import Claimer
from pulljobs.engine.claiming.guarded import Guards
from pulljobs.engine.claiming.rows import Terms
from pulljobs.engine.low_water_marks import Entry, LowWaterMarks
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.ids import first_of
from pulljobs.models import Consumer, Lease
from pulljobs.states import State
from pulljobs.storage import (
    jobs,
    keys,
    leases,
    limits,
    listen,
    messages,
    nodes,
    sessions,
    settling,
    sized_claims,
    turns,
)
from pulljobs.storage.rows import (
    Claimed,
    Finished,
    HeldJob,
    NotYet,
    Refusal,
    StoredMessage,
    Taken,
)
from pulljobs.storage.statements import AliasSession
from pulljobs.storage.turns import TakeResult

REAPED_LEASES = 20
FEW: Final = 10
"""Number of jobs of a claim up to which the next one returns the messages itself."""
RATE_LIMITED: Final = Refusal.RATE_LIMITED
THROTTLED: Final = Refusal.THROTTLED
TIMED: Final = frozenset({RATE_LIMITED, THROTTLED, Refusal.KEY_LIMITED})
"""Limits whose refusal may say when the next job is allowed."""
LIMITED_POLL: Final = timedelta(seconds=5)
"""Longest time until the next claim while a rate allows none.

Tokens may come back, or a rate may rise, without a notification.
"""
QUIET: Final = timedelta(seconds=0.2)
"""Time after a claim that a rate refused, in which notifications of publishes cause no claim."""
FROM_THE_HEAD = LowWaterMarks().entry_above()
"""Entry of a claim that knows no low-water marks, at the head of the claim index."""


class Claim(NamedTuple):
    """Result of a claim: jobs with their messages in claim order, and when to claim again.

    `taken` is the new lease, or None when nothing was claimed. A claim that repeats an earlier
    claim, by its request id, has the lease of that claim and the jobs that it still holds, if any.
    """

    taken: Taken | None
    jobs: list[tuple[HeldJob, StoredMessage]]
    more: bool
    """True if more jobs may be claimable right now."""
    next_due: timedelta | None
    """Time until a job is due, a pause ends or a token comes, if nothing more is claimable."""
    refusal: Refusal | None = None
    """Reason for getting no more: DELETED, PAUSED, MAX_BYTES or one of the limits."""
    repeated: bool = False
    """True if it repeats an earlier claim, whose caller may have the jobs: release none of them."""

    @property
    def is_spent(self) -> bool:
        """True if it repeats an earlier claim that holds no job now. Other jobs may be ready."""
        return self.taken is not None and not self.jobs

    @property
    def limited_for(self) -> timedelta | None:
        """Time until a rate or a throttle allows a further job, or None if neither refused one."""
        return self.next_due if self.refusal in (RATE_LIMITED, THROTTLED) else None

    @property
    def retry_after(self) -> timedelta | None:
        """Time until the limit that refused jobs allows the next one, or None.

        It is None if no limit refused jobs, and for a concurrency limit, which allows the next job
        as soon as another one ends.
        """
        return self.next_due if self.refusal in TIMED else None


class _ClaimRequest(NamedTuple):
    """Arguments of `Puller.claim`."""

    wanted: int
    lease_duration: timedelta | None
    max_bytes: int | None
    request_id: str | None


@dataclass(slots=True)
class Puller:
    """Object that claims jobs of one consumer in a process, and keeps its low-water marks."""

    using: str
    consumer: Consumer
    via: str = Lease.Via.WORKER
    node_id: UUID | None = None
    timeout: timedelta = timedelta()
    """Time for which leases can be renewed at least. The worker sets it by the time limit."""
    _raw: weakref.ref[object] | None = None
    _server: datetime | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _claimer: Claimer = field(init=False)
    _is_small: bool = False
    """True if the last claim took few jobs, because the next claim probably does so too."""

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
        """Claim up to `wanted` jobs under one new lease and return them with their messages.

        `lease_duration` None is the consumer's. `max_bytes` bounds payloads and headers together:
        the first job that does not fit stays queued. A second claim under a `request_id` returns
        the jobs that the lease of the first claim still holds, and nothing else while that lease
        exists. In a transaction of the caller's, a rollback gives the jobs back.
        """
        request = _ClaimRequest(wanted, lease_duration, max_bytes, request_id)
        began = tracing.now()
        while True:
            if request_id is not None:
                before = claimed_before(self.using, self.consumer.pk, request_id)
                if before is not None:
                    return before
            with self._lock:
                claimed = self._claim(request)
            if claimed.refusal is not Refusal.REPEATED:
                return self._with_telemetry(claimed, wanted, began)

    def prepare(self, lease_duration: timedelta) -> None:
        """Let the server plan claim.sql and claim_level.sql on this thread's connection.

        The first claim by them is then as quick as later ones. Nothing is claimed here.
        `lease_duration` is that of the claims to come.
        """
        terms = Terms(self.via, self.max_lease, self.node_id, lease_duration, few=FEW)
        plain.prepare(AliasSession(self.using), self.consumer.pk, terms)
        messages.read_messages(self.using, [first_of(datetime.now(UTC))])

    @property
    def starts_at_head(self) -> bool:
        """True if the next claim enters the claim index at its head: no low-water mark is known."""
        marks = self._claimer.marks
        return not marks.positions and marks.below is None

    @property
    def guards(self) -> Guards:
        """Rules of the consumer that the last claim obeyed: exclusive keys, limits, turns."""
        return self._claimer.guards

    def _with_telemetry(self, claimed: Claimed, wanted: int, began: int) -> Claim:
        emission.emit_limited(self.using, self.consumer, _limit_of(claimed))
        if claimed.taken is None:
            more = claimed.refusal is None and (
                claimed.more or self._claimer.marks.below is not None
            )
            return Claim(None, [], more, claimed.next_due, claimed.refusal)
        emission.emit_claimed(self.using, self.consumer, claimed.jobs, claimed.started_at)
        self._is_small = len(claimed.jobs) <= FEW
        together = _with_messages(self.using, claimed.jobs, claimed.messages)
        emission.trace_claimed(self.consumer, together, began)
        more = claimed.more or len(together) == wanted
        return Claim(claimed.taken, together, more, claimed.next_due, claimed.refusal)

    def _claim(self, request: _ClaimRequest) -> Claimed:
        if sessions.in_transaction(self.using):
            # A rollback may give the jobs back, so the low-water marks must not learn from it.
            known = self._claimer
            unmarked = replace(known, marks=LowWaterMarks(), ring=LowWaterMarks())
            claimed = self._run(request, unmarked, FROM_THE_HEAD)
            known.guards, known.job_cost = unmarked.guards, unmarked.job_cost
            return claimed
        if self._is_elsewhere():
            self._claimer.forget()
        return self._claimer.walk(request.wanted, partial(self._run, request, self._claimer))

    def _is_elsewhere(self) -> bool:
        """Return True if the connection, or a pooler's server, changed since the last claim."""
        raw = sessions.raw_connection(self.using)
        pooled = sessions.behind_pooler(self.using)
        server = nodes.server_start(self.using) if pooled else None
        before = (None if self._raw is None else self._raw(), self._server)
        self._raw, self._server = weakref.ref(raw), server
        return before != (raw, server)

    @property
    def max_lease(self) -> timedelta:
        """Longest time for which renewals can keep a lease, from its claim on."""
        return max(settings().MAX_LEASE, self.timeout)

    def _run(self, request: _ClaimRequest, claimer: Claimer, entry: Entry) -> Claimed:
        terms = Terms(
            self.via, self.max_lease, self.node_id, request.lease_duration, request.request_id
        )
        if self._is_small:
            terms = terms._replace(few=FEW)
        fit = None
        if request.max_bytes is not None:
            fit = partial(sized_claims.claim_within, self.using, request.wanted, request.max_bytes)
        return claimer.claim(AliasSession(self.using), request.wanted, terms, entry, fit)


def _limit_of(claimed: Claimed) -> Refusal | NotYet | None:
    """Return why a claim got no more jobs, as a NotYet if the time until it can is known."""
    if claimed.refusal in TIMED and claimed.next_due is not None:
        return NotYet(claimed.refusal, claimed.next_due)
    return claimed.refusal


def claimed_before(using: str, consumer_id: int, request_id: str) -> Claim | None:
    """Return the claim under that request id with the jobs that its lease still holds.

    Return None if no lease has the request id.
    """
    known = leases.requested(using, consumer_id, request_id)
    if known is None:
        return None
    taken, held = known
    together = _with_messages(using, held)
    return Claim(taken, together, more=False, next_due=None, repeated=True)


def _with_messages(
    using: str, held: list[HeldJob], inline: Sequence[StoredMessage] = ()
) -> list[tuple[HeldJob, StoredMessage]]:
    ids = [job.message_id for job in held]
    read = {message.id: message for message in inline}
    if unread := [id for id in ids if id not in read]:
        read |= messages.read_messages(using, unread)
    return list(zip(held, map(read.__getitem__, ids), strict=True))


def take(
    consumer: Consumer, job_id: int, source: State, *, incremental_timeout: timedelta | None = None
) -> TakeResult:
    """Claim one job by its id, as a job POST of the broker protocol does.

    `source` is the state that the caller saw, QUEUED or DEAD. `incremental_timeout`, which the
    client asked for, lengthens the lease. Return the lease, the reason why a limit or a pause
    refuses the job, or None if the job is in another state or belongs to another consumer.
    """
    lease_duration = consumer.protocol_lease_duration or settings().PROTOCOL_LEASE
    using = settings().DATABASE
    attempt = partial(
        jobs.take,
        using,
        consumer.pk,
        job_id,
        source=source,
        lease_duration=lease_duration + (incremental_timeout or timedelta()),
        max_lease=settings().MAX_LEASE,
        via=Lease.Via.POST,
        incremental_timeout=incremental_timeout,
    )
    taken: TakeResult = attempt()
    if taken is Refusal.UNGUARDED:
        taken = limits.take(using, consumer.pk, job_id, partial(attempt, guarded=True))
    if isinstance(taken, Taken):
        emission.emit_taken(using, consumer)
    else:
        emission.emit_limited(using, consumer, taken)
    return taken


def renew(
    held: Sequence[Held],
    lease_duration: timedelta | None = None,
    *,
    running: Collection[int] | None = None,
) -> dict[Held, datetime]:
    """Renew the leases of held jobs and return the new ends of the leases by job.

    The lease of a job that is missing in the result is lost or at its hard end, unless `still_held`
    returns the job: then another transaction has its lease locked. `running` has the ids of the
    jobs whose handlers run now: if the worker crashes, only these are charged. With None this is
    not noted.
    """
    return leases.renew(settings().DATABASE, held, lease_duration, running=running)


def still_held(held: Sequence[Held]) -> set[Held]:
    """Return the jobs whose lease can still be renewed, of those that `renew` did not return."""
    return leases.still_held(settings().DATABASE, held)


def note_running(node_id: UUID, running: Collection[int]) -> None:
    """Store which jobs run on a node that can't renew its leases itself.

    If its leases expire, only these jobs are charged.
    """
    leases.note_running(settings().DATABASE, node_id, running)


def prepare_to_finish() -> None:
    """Let the server plan the settling statements on this thread's connection in advance."""
    settling.prepare(settings().DATABASE)


def finish(
    settlements: Sequence[Settlement],
    find_names: FindNames = emission.no_names,
    *,
    skip_locked: bool = False,
) -> Finished:
    """Write outcomes of jobs. The result and events name lost leases and refused outcomes.

    `find_names` returns (channel, consumer) by job id, for events. Outcomes of jobs in `locked` of
    the result are not written: another transaction kept their rows locked for more than two
    seconds, or, with `skip_locked`, had them locked. The caller may try again later. In a
    transaction of the caller's a wait that takes too long raises OperationalError instead.
    """
    finished = jobs.finish(settings().DATABASE, settlements, skip_locked=skip_locked)
    _announce_finished(settlements, finished, find_names)
    return finished


def finish_together(
    settlements: Sequence[Settlement], find_names: FindNames = emission.no_names
) -> Finished:
    """Write outcomes of several callers in one transaction, or none of them after an error.

    It waits for no locked job: outcomes of jobs that another transaction has locked are not
    written, and the result has these jobs in `locked`.
    """
    if not settlements:
        return Finished({}, [], {})
    finished = jobs.finish_free(settings().DATABASE, settlements)
    _announce_finished(settlements, finished, find_names)
    return finished


def _announce_finished(
    settlements: Sequence[Settlement], finished: Finished, find_names: FindNames
) -> None:
    emission.emit_finished(settings().DATABASE, settlements, finished, find_names)
    jobs.wake_on_commit(settings().DATABASE, finished.released)
    listen.wake_on_commit(settings().DATABASE, finished.roomier)


def reap() -> int | None:
    """Expire the jobs of some overdue leases. Return how many jobs, None if no lease is overdue."""
    return _announce(jobs.reap(settings().DATABASE, REAPED_LEASES))


def sweep_keys() -> bool:
    """Repair some keys whose waiting jobs could not be claimed any more after a crash.

    Return True if there may be more such keys.
    """
    swept = [sweep(settings().DATABASE) for sweep in (keys.sweep, turns.sweep)]
    return any(swept)


def abandon(node_id: UUID, started: frozenset[int]) -> int | None:
    """Expire the jobs in `started` of a node that is certainly dead, and release its others.

    Return how many jobs were taken from it, or None if it holds no lease.
    """
    return _announce(jobs.abandon(settings().DATABASE, node_id, started))


def give_back(node_id: UUID, *, but: frozenset[UUID]) -> None:
    """Release, uncharged, the jobs that a living node holds, except under lease tokens in `but`."""
    _announce(jobs.abandon(settings().DATABASE, node_id, frozenset(), but=but))


def _announce(finished: Finished | None) -> int | None:
    if finished is None:
        return None
    if finished.states or finished.refused:
        emission.emit_given_back(settings().DATABASE, finished)
        listen.wake_on_commit(settings().DATABASE, finished.roomier)
        back = {id for id, state in finished.states.items() if state is State.QUEUED}
        jobs.wake_on_commit(settings().DATABASE, back)
    return len(finished.states)
