"""Lanes: where claimed jobs wait and run. Threads are one, the event loop has others."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

from pulljobs.handlers import ClaimedJob

WORK_AHEAD: Final = 0.5
"""Seconds of work that may wait in memory."""
PACE_WINDOW: Final = 0.1
LONGEST_WAIT: Final = timedelta(minutes=1)
"""In memory, before a job that has not begun is given back; a lease lasts longer by that, so that
its handler has all of its time."""


class Lane(Protocol):
    """Each has its own room, so that a full one holds up nobody else's jobs."""

    calls_back: bool
    """Whether it is heard of when it has room again: until then nobody need look at it."""

    def room(self) -> int:
        """How many more jobs it wants now."""

    def take(self, jobs: Sequence[ClaimedJob]) -> None:
        """From the fetcher's thread."""


@dataclass(slots=True)
class Pace:
    """How many jobs may wait for those that run: half a second of work at the rate of late.

    None where each takes long: others could be running it.
    """

    least: int
    """Few at first, as long as nothing is known."""
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
        if done:
            self.least = 0
        return max(self.least, int(self._rate * WORK_AHEAD))
