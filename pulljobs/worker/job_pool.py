"""Job pools: where claimed jobs wait and run, in threads or on the event loop."""

import time
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from itertools import accumulate
from math import ceil
from typing import Final, Protocol

from pulljobs.engine.run_times import SECONDS_AHEAD, RunTime
from pulljobs.handlers import ClaimedJob
from pulljobs.worker.runs import HandlerRuns

SHORTEST_RUN: Final = 1e-5
"""Least number of seconds that a job takes, with its way through the queue."""
ROUNDING: Final = 1e-9
PACE_GAIN: Final = 1 / 4
"""Weight of a new measurement in the pace of a pool."""
LONGEST_WAIT: Final = timedelta(minutes=1)
"""Longest wait in memory, after which a job that has not started is released.

Leases can be renewed for that much longer, so that a handler has its full time limit.
"""
LONGEST_STALL: Final = 2.0
"""Seconds without the end of a run after which the jobs that wait for one are released."""


class JobPool(Protocol):
    """Place where claimed jobs wait and run. A full pool holds up no jobs of other pools."""

    reports_room: bool
    """True if the pool notes in the rotation that it may take jobs again: it need not stay due."""

    def room(self, run_time: RunTime) -> int:
        """Return how many more jobs of a handler the pool takes now, zero or less for none."""

    def take(self, jobs: Sequence[ClaimedJob]) -> None:
        """Queue the jobs. Only the fetcher's thread calls this."""


class StartPace:
    """Measured time between the starts of two jobs, while the pool has jobs waiting.

    Jobs of a process share its processor, however many slots there are. So quick jobs start far
    less often than their run times suggest.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        """Seconds between two starts, or 0 while that is unknown."""
        self._begun, self._at = 0, 0.0

    def note(self, begun: int, waiting: int) -> None:
        """Note how many jobs of the pool have begun so far, and how many wait."""
        now, jobs = time.monotonic(), begun - self._begun
        if waiting and not jobs:
            return
        if waiting:
            seconds = (now - self._at) / jobs
            self.seconds += PACE_GAIN * (seconds - self.seconds) if self.seconds else seconds
        elif jobs:  # The pool may have been empty for a while, so its pace is at least this.
            self.seconds = min(self.seconds, (now - self._at) / jobs)
        self._begun, self._at = begun, now


class ClaimAhead:
    """Estimate of how many more jobs a pool could start soon, from its runs and waiting jobs.

    The jobs start in the order of their claims.
    """

    def __init__(self, slots: range, runs: HandlerRuns) -> None:
        self._slots, self._runs = slots, runs
        self._pace, self._taken = StartPace(), 0
        self._queued: deque[tuple[RunTime, int]] = deque()
        """Run time and size of each claim of which jobs wait. Only the fetcher uses it."""

    def queue(self, jobs: Sequence[ClaimedJob]) -> None:
        """Note jobs of one claim that the pool has queued."""
        if jobs:
            self._taken += len(jobs)
            self._queued.append((jobs[0].run_time, len(jobs)))

    def room(self, run_time: RunTime, waiting: int) -> int:
        """Return how many more jobs of a handler could start within `run_time.ahead` seconds.

        `waiting` is the number of jobs in the pool that have not begun. A run that is late by some
        seconds is expected to take as many again. A handler with an unknown run time is expected to
        take `run_time.ahead`: each idle thread gets a single job of it.
        """
        ahead = run_time.ahead
        self._pace.note(self._taken - waiting, waiting)
        queued = [(_expected(each, ahead), number) for each, number in self._waiting(waiting)]
        long = sum(number for seconds, number in queued if seconds == ahead)
        backlog = sum(seconds * number for seconds, number in queued if seconds < ahead)
        waits = self._waits()
        # A long job takes a slot out of the calculation, all others are spread evenly.
        free = [ahead - wait for wait in waits[long:] if wait < ahead]
        step = _expected(run_time, ahead)
        starts = sum(ceil(seconds / step) for seconds in free)
        most = sum(ceil(seconds / step) for seconds in _spread(backlog, free))
        room = max(0, min(most, starts - int(backlog / step + ROUNDING)))
        if ahead < SECONDS_AHEAD and self._pace.seconds:
            quick = max(len(free), int(ahead / self._pace.seconds))
            return max(0, min(room, quick - waiting))
        return room

    def _waits(self) -> list[float]:
        """Return the seconds until each slot comes free, in ascending order."""
        now = time.monotonic()
        busy = [
            abs(since + job.run_time.expected - now) for job, since in self._runs.begun(self._slots)
        ]
        return [0.0] * (len(self._slots) - len(busy)) + sorted(busy)

    def _waiting(self, waiting: int) -> list[tuple[RunTime, int]]:
        """Return (run time of the handler, number of waiting jobs) by claim, the newest first.

        The last `waiting` jobs that were claimed have not begun. Claims whose jobs have all begun
        are forgotten.
        """
        claims = list[tuple[RunTime, int]]()
        while waiting > 0 and self._queued:
            run_time, number = self._queued.pop()
            claims.append((run_time, min(number, waiting)))
            waiting -= number
        self._queued.clear()
        self._queued.extend(reversed(claims))
        return claims


def _expected(run_time: RunTime, ahead: float) -> float:
    return min(max(run_time.expected, SHORTEST_RUN), ahead)


def _spread(backlog: float, free: Sequence[float]) -> list[float]:
    """Return the free seconds that `backlog` seconds of work, spread evenly, leave in each slot.

    `free` has the free seconds of each slot before, longest first. Full slots are left out.
    """
    for number, total in enumerate(accumulate(free), 1):
        left = (total - backlog) / number
        if number == len(free) or left >= free[number]:
            return [min(left, seconds) for seconds in free if min(left, seconds) > ROUNDING]
    return []
