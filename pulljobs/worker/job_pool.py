"""Job pools: where claimed jobs wait and run, in threads or on the event loop."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

from pulljobs.handlers import ClaimedJob

SECONDS_AHEAD: Final = 0.5
"""Seconds of work that may wait in memory."""
RATE_WINDOW: Final = 0.1
"""Shortest time in seconds over which the rate is measured."""
LONGEST_WAIT: Final = timedelta(minutes=1)
"""Longest wait in memory, after which a job that has not started is released.

Leases can be renewed for that much longer, so that a handler has its full time limit.
"""


class JobPool(Protocol):
    """Pool with room of its own, so that a full pool never holds up the jobs of another one."""

    reports_room: bool
    """True if the pool notifies the fetcher when it has room again; the fetcher need not poll."""

    def room(self) -> int:
        """Return how many more jobs the pool takes now."""

    def take(self, jobs: Sequence[ClaimedJob]) -> None:
        """Queue the jobs; only the fetcher's thread calls this."""


@dataclass(slots=True)
class WorkAhead:
    """Number of jobs that may wait next to the running ones: half a second of work.

    It is 0 if each job takes long, so that another worker can run them.
    """

    least: int
    """Number while no job is done yet and the rate is unknown."""
    _rate: float = 0.0
    _done: int = 0
    _at: float = field(default_factory=time.monotonic)

    def jobs(self, done: int) -> int:
        """Return how many jobs may wait, given how many are done since the start."""
        now = time.monotonic()
        elapsed = now - self._at
        if elapsed > RATE_WINDOW:
            # Over a window: slow jobs that happen to end together are not a high rate.
            rate = (done - self._done) / elapsed
            self._rate = rate if rate > self._rate else 0.8 * self._rate + 0.2 * rate
            self._done, self._at = done, now
        if done:
            self.least = 0
        return max(self.least, int(self._rate * SECONDS_AHEAD))
