"""The fetcher: claims for every consumer in turn, as much as its lane has room for."""

import random
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.db import DatabaseError, InterfaceError, connections

from pulljobs import pulling
from pulljobs.conf import Settings, settings
from pulljobs.handlers import ClaimedJob, Handler
from pulljobs.outcomes import Held
from pulljobs.pulling import Claim, Puller
from pulljobs.storage import listen, statements
from pulljobs.worker.held import Holdings
from pulljobs.worker.lanes import Lane
from pulljobs.worker.loop import JITTER

WAITER_MARGIN: Final = timedelta(seconds=5)
SOONEST: Final = 0.001
POLLS_PER_SECOND: Final = 50
"""Of all consumers together: with many of them each is polled less often than it might be."""


@dataclass(slots=True, eq=False)
class Source:
    """A consumer that this worker serves."""

    puller: Puller
    handler: Handler
    lane: Lane
    look_at: float = 0.0
    """When to claim next, on the monotonic clock; before it only if something was heard."""


class Fetcher:
    """Loop: claim for those that are due, longest waiting first; else wait for what comes first."""

    def __init__(
        self,
        sources: Sequence[Source],
        limits: Settings,
        holdings: Holdings,
        *,
        stopping: Callable[[], bool],
        on_drained: Callable[[], None] | None = None,
    ) -> None:
        self._sources, self._limits = list(sources), limits
        self._known = {one.puller.consumer.pk for one in sources}.union(
            one.handler.place for one in sources
        )
        self._holdings = holdings
        self._stopping, self._on_drained = stopping, on_drained
        self._heard: deque[object] = deque()
        self._registered_until = 0.0
        self._unanswered = False
        self._found = True
        """Something was claimed since the last look at every consumer."""

    def hear(self, consumers: Collection[object] | None = None) -> bool:
        """There may be something for these ids or places, None: for any; whether that is news.

        From any thread; whoever says it wakes the loop, too.
        """
        if consumers is None:
            consumers = [source.handler.place for source in self._sources]
        known = [one for one in consumers if one in self._known]
        self._heard.extend(known)
        return bool(known)

    def tick(self) -> float:
        self._give_back_unanswered()
        for source in self._due():
            self._look(source)
        return self._pause()

    def _due(self) -> Iterator[Source]:
        """Those with room; what is heard meanwhile comes before what is only polled."""
        self._heed()
        now = time.monotonic()
        due = sorted((one for one in self._sources if one.look_at <= now), key=_look_at)
        waiting = deque(due)
        while waiting:
            waiting.extendleft(self._heed())
            source = waiting.popleft()
            if self._room(source) > 0:
                yield source

    def _heed(self) -> list[Source]:
        if not self._heard:
            return []
        heard = {self._heard.popleft() for _ in range(len(self._heard))}
        found = [
            one
            for one in self._sources
            if one.puller.consumer.pk in heard or one.handler.place in heard
        ]
        for source in found:
            source.look_at = 0.0
        return found

    def _room(self, source: Source) -> int:
        if self._stopping():
            return 0
        return min(self._limits.FETCH_BATCH, self._holdings.room, source.lane.room())

    def _look(self, source: Source) -> None:
        # Before it: one that fails has had its turn.
        source.look_at = time.monotonic() + self._limits.MAX_FETCH_INTERVAL.total_seconds()
        claim = self._fetch(source, self._room(source))
        self._found = self._found or claim.more or claim.taken is not None
        source.look_at = time.monotonic() + self._wait(claim)

    def _wait(self, claim: Claim) -> float:
        if claim.more:
            return self._limits.MIN_FETCH_INTERVAL.total_seconds()
        interval = self._limits.MAX_FETCH_INTERVAL.total_seconds()
        poll = max(interval, len(self._sources) / POLLS_PER_SECOND) * random.uniform(1 - JITTER, 1)
        return poll if claim.next_due is None else min(poll, claim.next_due.total_seconds())

    def _pause(self) -> float:
        if self._is_drained() or self._register():
            # Now look once more: for what came before the others' end, or before it was committed.
            self._look_at_all()
            return 0
        now = time.monotonic()
        waits = [one.look_at - now for one in self._sources if one.look_at > now or self._room(one)]
        pause = min([self._limits.MAX_FETCH_INTERVAL.total_seconds(), *waits])
        return max(pause, SOONEST) if pause > 0 else 0

    def _is_drained(self) -> bool:
        """Of a burst: nothing is held; twice in a row, with nothing found between, is the end."""
        if self._on_drained is None or len(self._holdings):
            return False
        if not self._found:
            self._on_drained()
            return False
        self._found = False
        return True

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
        puller = self._sources[0].puller
        if puller.node_id is None or statements.behind_pooler(puller.using):
            return False
        consumers = [source.puller.consumer.pk for source in self._sources]
        patience = needed + WAITER_MARGIN
        listen.wait(puller.using, consumers, puller.node_id, patience)
        lapsed = now > self._registered_until
        self._registered_until = now + patience.total_seconds()
        return lapsed

    def _give_back_unanswered(self) -> None:
        """Release what a claim took whose answer was lost with its connection."""
        node_id = self._sources[0].puller.node_id
        if self._unanswered and node_id is not None:
            pulling.give_back(node_id, but=self._holdings.tokens())
        self._unanswered = False

    def _fetch(self, source: Source, room: int) -> Claim:
        before = time.monotonic()
        try:
            claim = source.puller.claim(room)
        except (DatabaseError, InterfaceError):
            self._unanswered = True
            raise
        if claim.taken is None:
            return claim
        token, lease = claim.taken.token, source.puller.consumer.lease
        jobs = [
            ClaimedJob(
                source.handler,
                row,
                message,
                Held(row.id, token),
                lease=lease,
                claimed_at=before,
                renew=renew_one,
                stopping=self._stopping,
            )
            for row, message in claim.jobs
        ]
        self._holdings.add(jobs)
        source.lane.take(jobs)
        return claim


def _look_at(source: Source) -> float:
    return source.look_at


def renew_one(job: ClaimedJob) -> bool:
    """What `ClaimedJob.renew` does."""
    before = time.monotonic()
    if connections[settings().DATABASE].in_atomic_block:
        # There it would count from the commit only, and lock its lease until then: the flusher's.
        job.renew_at = before
        return not job.lost
    if job.held in pulling.renew([job.held], job.lease):
        job.extend(before)
        return True
    job.taken_away, job.renew_at = True, float("inf")
    return False
