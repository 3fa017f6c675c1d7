"""Loop of every worker process for runs that are not in flight."""

import time
from typing import Final

from pulljobs import hooks
from pulljobs.conf import settings
from pulljobs.storage import listen
from pulljobs.workflows import children, signals, versions

EVERY: Final = 10.0
"""Seconds between two sweeps."""
TAKE_UP_SECONDS: Final = 2.0
"""Seconds between two searches for runs that workers with other code have refused."""


class RunLoop:
    """Loop that queues runs of versions that other workers refused, and repairs after crashes.

    For example, a sender crashed before it woke the run of its signal, or an operator's process
    killed a run and crashed before it killed the children.
    """

    wake_channel = "pulljobs_runs"

    def __init__(self) -> None:
        self._look_at = self._take_up_at = float("-inf")
        self._taken_up: list[int] = []
        """Consumers of the runs that the last pass took up."""

    def wake(self) -> None:
        """Let the next pass sweep before its time, without ending the sleep. Thread-safe."""
        self._look_at = float("-inf")

    def tick(self) -> float:
        """Queue runs that other workers refused, and sweep. Return the seconds to sleep."""
        if time.monotonic() >= self._take_up_at:
            has_more = self._take_up(settings().DATABASE)
            self._take_up_at = time.monotonic() + (0.0 if has_more else TAKE_UP_SECONDS)
        if time.monotonic() >= self._look_at:
            has_more = signals.sweep(settings().DATABASE)
            children.sweep(settings().DATABASE)
            self._look_at = time.monotonic() + (0.0 if has_more else EVERY)
        return max(0.0, min(self._look_at, self._take_up_at) - time.monotonic())

    def _take_up(self, using: str) -> bool:
        """Take runs up, and look for them at once. Return True if more may be left.

        The next pass wakes the other workers, in case this one had no room for the runs. To wake
        them now would often let a worker claim them that does not accept their version.
        """
        listen.wake_on_commit(using, self._taken_up)
        self._taken_up = versions.take_up(using)
        for wake in hooks.fetch_wakers:
            wake(self._taken_up)
        return len(self._taken_up) >= versions.AT_ONCE
