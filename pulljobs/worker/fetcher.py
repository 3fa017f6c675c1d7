"""The fetcher: claims for every consumer in turn, as much as its lane has room for."""

import random
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import repeat
from typing import Final
from uuid import UUID

from django.db import DatabaseError, InterfaceError, connections

from pulljobs import pulling
from pulljobs.conf import Settings, settings
from pulljobs.engine import outcomes
from pulljobs.engine.circuit import Result
from pulljobs.handlers import ClaimedJob, Grant
from pulljobs.pulling import Claim
from pulljobs.storage import listen, statements
from pulljobs.storage.rows import HeldJob
from pulljobs.worker.circuits import Breakers
from pulljobs.worker.in_flight import Holdings
from pulljobs.worker.isolation import Quarantine
from pulljobs.worker.job_pool import LONGEST_WAIT, Lane
from pulljobs.worker.loop import JITTER
from pulljobs.worker.result_buffer import Outbox
from pulljobs.worker.subscriptions import Source

WAITER_MARGIN: Final = timedelta(seconds=5)
SOONEST: Final = 0.001
NEVER: Final = float("inf")
LONGEST_PASS: Final = 0.5
URGENT_SHARE: Final = 3
"""Of so many looks one is for those that wait their turn."""
USED_UP: Final = "Not run: its retries or deliveries were used up before."
POLLS_PER_SECOND: Final = 50
"""Of all consumers together: with many of them each is polled less often than it might be."""


class Fetcher:
    """Loop: claim for those that are due, longest waiting first; else wait for what comes first."""

    def __init__(
        self,
        sources: Callable[[], Sequence[Source]],
        limits: Settings,
        holdings: Holdings,
        outbox: Outbox,
        breakers: Breakers,
        *,
        node_id: UUID,
        stopping: Callable[[], bool],
        on_drained: Callable[[], None] | None = None,
    ) -> None:
        """`sources` says whom to serve: another list whenever that has changed."""
        self._whom, self._limits = sources, limits
        self._sources: Sequence[Source] = ()
        self._known: Mapping[object, Source] = {}
        """By the ids and places of their consumers, and by lanes of their own."""
        self._serve(self._whom())  # The first report names them already.
        self._node_id, self._holdings = node_id, holdings
        self._outbox, self._breakers = outbox, breakers
        self._quarantine = Quarantine(holdings, outbox)
        self._stopping, self._on_drained = stopping, on_drained
        self._heard: deque[object] = deque()
        self._freed: deque[object] = deque()
        self._urgent: deque[Source] = deque()
        """Those for which there is something new."""
        self._turns = 0
        self._looked: set[Source] = set()
        """At those of them a burst has looked since it found something."""
        self._registered_until = 0.0
        self._look_again_at = NEVER
        """For what was published at the moment of that: its publisher woke nobody."""
        self._unanswered = False
        self._found = True
        """Something was claimed since a burst began to look whether there is nothing."""

    def hear(self, consumers: Collection[object] | None = None) -> bool:
        """There may be something for these ids or places, None: for any; whether that is news.

        From any thread; whoever says it wakes the loop, too.
        """
        if consumers is None:
            consumers = [source.handler.path for source in self._sources]
        known = [one for one in consumers if one in self._known]
        self._heard.extend(known)
        return bool(known)

    def hear_of_room(self, lane: Lane) -> None:
        """It was full; from any thread."""
        self._freed.append(lane)

    def hear_of(self, settled: Collection[ClaimedJob], back: Collection[ClaimedJob]) -> None:
        """Those that are `back` in the queue may be claimed again; in place of others, others."""
        concerned = {job.handler.path for job in back}
        waiting = {one.handler.path for one in self._sources if one.waits_for_settles}
        if waiting:
            concerned |= waiting & {job.handler.path for job in settled}
        self.hear(concerned)

    def tick(self) -> float:
        self._give_back_unanswered()
        self._serve(self._whom())
        self._quarantine.turn()
        for source, room, ticket in self._due():
            self._look(source, room, ticket)
            if self._register():  # Many claims may take longer than it lasts.
                self._look_at_all()
        return self._pause()

    def places(self) -> list[str]:
        """Whom it claims for, as channel/consumer."""
        return ["/".join(source.handler.path) for source in self._sources]

    def give_back(self) -> None:
        """What waits to run alone, once the worker stops."""
        self._quarantine.give_back()

    def _serve(self, sources: Sequence[Source]) -> None:
        if sources is not self._sources:
            known: dict[object, Source] = {one.puller.consumer.pk: one for one in sources}
            known |= {one.handler.path: one for one in sources}
            self._known = known | {one.lane: one for one in sources if one.lane.calls_back}
            self._sources, self._registered_until = sources, 0.0

    def _due(self) -> Iterator[tuple[Source, int, int]]:
        """Those with room, how much (a second look may find less than none) and its ticket.

        A pass comes to an end, however much is heard in it.
        """
        now = time.monotonic()
        self._take_in(now)
        waiting = deque(sorted((one for one in self._sources if one.look_at <= now), key=_turn))
        while time.monotonic() < now + LONGEST_PASS and (source := self._next(waiting)):
            # Before its room: the circuit may open at any moment.
            ticket = self._breakers.of(source.handler).circuit.ticket
            if (room := self._room(source)) > 0:
                yield source, room, ticket
            elif source.lane.calls_back and source.lane.room() <= 0:
                source.look_at = time.monotonic() + self._poll()
            waiting.extend(self._take_in(time.monotonic()))

    def _next(self, waiting: deque[Source]) -> Source | None:
        """What is new does not wait for those with a backlog, nor they for ever for that."""
        self._turns += 1
        now = time.monotonic()
        is_urgent = self._turns % URGENT_SHARE
        for queue in (self._urgent, waiting) if is_urgent else (waiting, self._urgent):
            while queue:
                source = queue.popleft()
                if source.look_at <= now:  # Else it stood in both, and has had its turn.
                    return source
        return None

    def _take_in(self, now: float) -> list[Source]:
        """What other threads said: the urgent are kept, those whose lane has room again follow."""
        self._urgent.extend(self._of(self._heard, now))
        return self._of(self._freed, now)

    def _of(self, told: deque[object], now: float) -> list[Source]:
        keys = {told.popleft() for _ in range(len(told))}
        found = [source for key in keys if (source := self._known.get(key)) is not None]
        for source in found:
            source.look_at = min(source.look_at, now)
        return found

    def _room(self, source: Source) -> int:
        is_over = self._limits.ONCE and source in self._looked
        if self._stopping() or is_over or not self._quarantine.is_empty:
            return 0
        if (held := self._holdings.room) <= 0:
            return 0  # The lane is not asked, for it would tell of its room with every job.
        room = min(self._limits.FETCH_BATCH, held, source.lane.room())
        let = self._breakers.of(source.handler).room()
        return room if let is None else min(room, let)

    def _look(self, source: Source, room: int, ticket: int) -> None:
        # Before it: one that fails has had its turn.
        source.look_at = time.monotonic() + self._limits.MAX_FETCH_INTERVAL.total_seconds()
        claim = self._fetch(source, room, ticket)
        self._looked.add(source)
        self._found = self._found or claim.more or claim.taken is not None
        source.look_at = time.monotonic() + self._wait(claim)

    def _wait(self, claim: Claim) -> float:
        if claim.more:
            return self._limits.MIN_FETCH_INTERVAL.total_seconds()
        poll = self._poll()
        return poll if claim.next_due is None else min(poll, claim.next_due.total_seconds())

    def _poll(self) -> float:
        interval = self._limits.MAX_FETCH_INTERVAL.total_seconds()
        return max(interval, len(self._sources) / POLLS_PER_SECOND) * random.uniform(1 - JITTER, 1)

    def _pause(self) -> float:
        if self._is_drained() or self._register() or self._is_to_look_again():
            # Now look once more: for what came before the others' end, or before it was committed.
            self._look_at_all()
            return 0
        now = time.monotonic()
        waits = [self._look_again_at - now]
        waits += [
            one.look_at - now for one in self._sources if one.look_at > now or self._room(one)
        ]
        waits += [wait for wait in self._breakers.waits() if wait > 0]
        pause = min([self._limits.MAX_FETCH_INTERVAL.total_seconds(), *waits])
        return max(pause, SOONEST) if pause > 0 else 0

    def _is_to_look_again(self) -> bool:
        if time.monotonic() < self._look_again_at:
            return False
        self._look_again_at = NEVER
        return True

    def _is_drained(self) -> bool:
        """Of a burst: nothing is held; a look at everybody, with nothing found, is the end.

        Whether that look is to begin.
        """
        if self._on_drained is None or len(self._holdings):
            return False
        if self._found and not self._limits.ONCE:
            self._found = False
            self._looked.clear()
            return True
        if not any(self._room(one) > 0 for one in self._sources if one not in self._looked):
            self._on_drained()
        return False

    def _look_at_all(self) -> None:
        for source in self._sources:
            source.look_at = 0.0

    def _register(self) -> bool:
        """See to it that publishers wake this process; whether that was news."""
        now = time.monotonic()
        # Longer than this loop may sleep: nobody wakes a waiter whose time is over.
        needed = self._limits.MAX_FETCH_INTERVAL + WAITER_MARGIN
        if now + needed.total_seconds() < self._registered_until:
            return False
        using = self._limits.DATABASE
        if statements.behind_pooler(using):
            return False
        statements.relax(using, False)
        consumers = [source.puller.consumer.pk for source in self._sources]
        patience = needed + WAITER_MARGIN
        listen.wait(using, consumers, self._node_id, patience)
        lapsed = now > self._registered_until
        if lapsed:
            self._look_again_at = now + listen.NEW.total_seconds()
        self._registered_until = now + patience.total_seconds()
        return lapsed

    def _give_back_unanswered(self) -> None:
        """Release what a claim took whose answer was lost with its connection."""
        if self._unanswered:
            pulling.give_back(self._node_id, but=self._holdings.tokens())
        self._unanswered = False

    def _fetch(self, source: Source, room: int, ticket: int) -> Claim:
        budget = source.handler.timeout or self._limits.HANDLER_TIMEOUT
        source.puller.timeout = LONGEST_WAIT + budget
        statements.relax(self._limits.DATABASE, source.may_be_claimed_twice)
        before = time.monotonic()
        try:
            claim = source.puller.claim(room)
        except (DatabaseError, InterfaceError):
            self._unanswered = True
            raise
        if claim.taken is not None:
            grant = self._grant(source, before, ticket)
            rows, messages = zip(*claim.jobs, strict=True)
            helds = outcomes.all_held(claim.taken.lease_token, [row.id for row in rows])
            jobs = list(map(ClaimedJob, rows, messages, helds, repeat(grant)))
            self._hand_on(source, rows, jobs)
        return claim

    def _grant(self, source: Source, claimed_at: float, ticket: int) -> Grant:
        lease = source.puller.consumer.lease_duration
        breaker = self._breakers.of(source.handler)
        breaker.claimed(ticket)
        return Grant(
            handler=source.handler,
            lease_duration=lease,
            claimed_at=claimed_at,
            hard_end=claimed_at + max(lease, source.puller.max_lease).total_seconds(),
            start_by=claimed_at + LONGEST_WAIT.total_seconds(),
            renew=renew_one,
            stopping=self._stopping,
            circuit=breaker.circuit,
            on_end=partial(breaker.tell, ticket),
        )

    def _hand_on(self, source: Source, rows: Sequence[HeldJob], jobs: list[ClaimedJob]) -> None:
        self._holdings.add(jobs)
        deliveries, retries = source.puller.consumer.max_deliveries, source.puller.consumer.retries
        odd = {
            job: is_used_up
            for (_, _, _, tried, claimed, suspect), job in zip(rows, jobs, strict=True)
            if (is_used_up := claimed > deliveries or tried > retries) or suspect
        }
        for job, is_used_up in odd.items():
            if is_used_up:
                # Such a job runs no more: somebody lowered a limit, or it never came to an end.
                job.verdict = Result.NEUTRAL
                self._outbox.say(job, outcomes.retry(job.held, USED_UP))
            else:
                self._quarantine.take(source.lane, [job])
        others = [job for job in jobs if job not in odd] if odd else jobs
        if all(odd.values()):
            source.lane.take(others)
        else:
            for job in others:  # A suspect would have to wait for them.
                self._outbox.release(job)
        if len(self._holdings) == len(jobs):
            time.sleep(0)  # All else was idle: a handler begins before this thread goes on.


def _turn(source: Source) -> tuple[bool, float]:
    """Longest waiting first; those together whose claims are committed alike."""
    return source.may_be_claimed_twice, source.look_at


def renew_one(job: ClaimedJob) -> bool:
    """What `ClaimedJob.renew` does."""
    if job.is_settled:
        return not job.lost
    before = time.monotonic()
    if connections[settings().DATABASE].in_atomic_block:
        # There it would count from the commit only, and lock its lease until then: the flusher's.
        job.renew_at = before
        return not job.lost
    if job.held in pulling.renew([job.held], job.lease_duration):
        job.extend(before)
        return True
    job.taken_away, job.renew_at = True, float("inf")
    return False
