"""The fetcher: claims for every consumer in turn, as much as there is room for."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
from pulljobs.worker.pool import Pool

WORK_AHEAD: Final = 0.5
"""Seconds of work that may wait in memory."""
WAITER_MARGIN: Final = timedelta(seconds=5)
SOONEST: Final = 0.001
PACE_WINDOW: Final = 0.1


@dataclass(slots=True)
class Source:
    """A consumer that this worker serves."""

    puller: Puller
    handler: Handler


@dataclass(slots=True)
class Pace:
    """How many jobs may wait: half a second of work at the rate of late, few at first."""

    least: int
    _rate: float = 0.0
    _done: int = 0
    _at: float = field(default_factory=time.monotonic)

    def ahead(self, done: int) -> int:
        now = time.monotonic()
        elapsed = now - self._at
        if elapsed > PACE_WINDOW:
            # Over a while: slow jobs that happen to end together are no high rate.
            rate = (done - self._done) / elapsed
            self._rate = rate if rate > self._rate else 0.8 * self._rate + 0.2 * rate
            self._done, self._at = done, now
        return max(self.least, int(self._rate * WORK_AHEAD))


class Fetcher:
    """Loop: fetch while there is room and something there; else wait for a wake-up or due time."""

    def __init__(
        self,
        sources: Sequence[Source],
        limits: Settings,
        pool: Pool,
        holdings: Holdings,
        *,
        stopping: Callable[[], bool],
        on_drained: Callable[[], None] | None = None,
    ) -> None:
        self._sources, self._limits = deque(sources), limits
        self._pool, self._holdings = pool, holdings
        self._stopping, self._on_drained = stopping, on_drained
        self._pace = Pace(limits.CONCURRENCY)
        self._registered_until = 0.0
        self._unanswered = False

    def tick(self) -> float:
        self._give_back_unanswered()
        dues, more = [], False
        for _turn in range(len(self._sources)):
            room = self._room()
            if room <= 0:
                return self._limits.MAX_FETCH_INTERVAL.total_seconds()
            source = self._sources[0]
            self._sources.rotate(-1)
            claim = self._fetch(source, room)
            more = more or claim.more
            dues.append(claim.next_due)
        return self._pause(more, dues)

    def _room(self) -> int:
        if self._stopping():
            return 0
        ahead = self._pace.ahead(self._pool.done)
        self._pool.low_water = ahead // 2
        waiting = self._pool.waiting.qsize()
        return min(self._limits.FETCH_BATCH, self._holdings.room, ahead - waiting)

    def _pause(self, more: bool, dues: list[timedelta | None]) -> float:
        if more:
            return self._limits.MIN_FETCH_INTERVAL.total_seconds()
        if self._on_drained is not None and not len(self._holdings):
            self._on_drained()
        if self._register():
            return 0  # Committed; now look once more, for what was published before that.
        waits = [due.total_seconds() for due in dues if due is not None]
        return max(min([self._limits.MAX_FETCH_INTERVAL.total_seconds(), *waits]), SOONEST)

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
        for job in jobs:
            self._pool.waiting.put(job)
        return claim


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
