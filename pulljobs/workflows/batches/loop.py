"""Loop of every worker process that merges the counts of batches and completes batches."""

import random
import time
from typing import Final

from pulljobs.conf import settings
from pulljobs.workflows.batches import looking
from pulljobs.workflows.batches.looking import noted

SHORTEST_PAUSE: Final = 0.05
"""Seconds before noted batches are merged, so that flushes of that time share a merge."""
LONGEST_PAUSE: Final = 5.0
LONGEST_LOCKED: Final = 1.0
"""Longest pause, after quick merges, before a batch is tried again that was locked elsewhere."""
PAUSE_FACTOR: Final = 10
"""Least length of a pause, up to `LONGEST_PAUSE`, in multiples of the time of its merges."""
SWEEP_SECONDS: Final = 10.0


class BatchLoop:
    """Loop that merges the counts of batches and completes batches.

    Batches that changed in this process come first, and all others every 10 seconds.
    """

    wake_channel = "pulljobs_batches"

    def __init__(self) -> None:
        now = time.monotonic()
        self._look_at = now
        self._pause = SHORTEST_PAUSE
        self._sweep_at = now + random.uniform(0, SWEEP_SECONDS)
        self._swept = 0

    def wake(self) -> None:
        """Put off the next merges for at least a short pause, in which more members may end."""
        self._look_at = max(self._look_at, time.monotonic() + SHORTEST_PAUSE)

    def tick(self) -> float:
        """Complete noted batches that ended, and sweep, when due. Return the seconds to sleep."""
        if noted and time.monotonic() >= self._look_at:
            self._look()
        if time.monotonic() >= self._sweep_at:
            self._sweep()
        next_at = min(self._look_at, self._sweep_at) if noted else self._sweep_at
        return max(0.0, next_at - time.monotonic())

    def _look(self) -> None:
        began = time.monotonic()
        batch_ids = locked = noted.take()
        try:
            locked = looking.look_at_each(settings().DATABASE, batch_ids)
        finally:  # After an error all of them are noted again.
            noted.add(locked)
            took = time.monotonic() - began
            # A publisher may keep a batch locked for long.
            self._pause = min(2 * self._pause, LONGEST_LOCKED) if locked else SHORTEST_PAUSE
            pause = min(max(self._pause, PAUSE_FACTOR * took), LONGEST_PAUSE)
            self._look_at = time.monotonic() + pause

    def _sweep(self) -> None:
        last = looking.sweep(settings().DATABASE, self._swept)
        self._swept = last or 0
        self._sweep_at = time.monotonic() + (0.0 if last else SWEEP_SECONDS)
