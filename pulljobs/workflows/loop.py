"""Loop of every worker process that looks after runs which no handler holds."""

import time
from typing import Final

from pulljobs.conf import settings
from pulljobs.workflows import children, signals, versions

EVERY: Final = 10.0
"""Seconds between two sweeps."""
TAKE_UP_SECONDS: Final = 2.0
"""Seconds after which a run is taken up that a worker with other code has left."""


class RunLoop:
    """Loop that takes up runs of its versions, and finishes what processes that died have left.

    It wakes runs whose senders died, and kills the children of killed runs.
    """

    wake_channel = "pulljobs_runs"

    def __init__(self) -> None:
        self._look_at = self._take_up_at = float("-inf")

    def wake(self) -> None:
        """Sweep in the next pass. Any thread may call this."""
        self._look_at = float("-inf")

    def tick(self) -> float:
        """Take up runs, and sweep, if that is due. Return the seconds until the next time."""
        if time.monotonic() >= self._take_up_at:
            has_more = versions.take_up(settings().DATABASE)
            self._take_up_at = time.monotonic() + (0.0 if has_more else TAKE_UP_SECONDS)
        if time.monotonic() >= self._look_at:
            has_more = signals.sweep(settings().DATABASE)
            children.sweep(settings().DATABASE)
            self._look_at = time.monotonic() + (0.0 if has_more else EVERY)
        return max(0.0, min(self._look_at, self._take_up_at) - time.monotonic())
