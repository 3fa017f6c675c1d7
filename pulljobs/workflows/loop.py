"""Loop of every worker process that finishes what processes that died have left of runs."""

import time
from typing import Final

from pulljobs.conf import settings
from pulljobs.workflows import children, signals

EVERY: Final = 10.0
"""Seconds between two sweeps."""


class RunLoop:
    """Loop that wakes runs whose senders died, and kills children of killed runs."""

    wake_channel = "pulljobs_runs"

    def __init__(self) -> None:
        self._look_at = float("-inf")

    def wake(self) -> None:
        """Sweep in the next pass. Any thread may call this."""
        self._look_at = float("-inf")

    def tick(self) -> float:
        """Sweep if that is due. Return the seconds until the next sweep."""
        if time.monotonic() >= self._look_at:
            has_more = signals.sweep(settings().DATABASE)
            children.sweep(settings().DATABASE)
            self._look_at = time.monotonic() + (0.0 if has_more else EVERY)
        return max(0.0, self._look_at - time.monotonic())
