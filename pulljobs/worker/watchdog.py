"""Watchdog: cancels handlers over their time limit, and checks health and wear of its process."""

import gc
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from pulljobs.conf import Settings
from pulljobs.engine.telemetry import JobTimedOut, emit
from pulljobs.worker.debounce import Debounce
from pulljobs.worker.runs import CancelReason, HandlerRun, HandlerRuns
from pulljobs.worker.shared_state import SharedState

LOOK: Final = 0.2
CANCEL_GRACE: Final = 0.3
"""Seconds that a thread gets to end a cancelled job before it counts as stuck."""
BEFORE_HARD_END: Final = 0.5
"""Seconds before the last possible end of a lease at which a run is cancelled, to settle in time.
"""
GROWTH: Final = 64 * 2**20
"""Bytes by which a process may grow before garbage is collected.

Otherwise it is collected after a number of new objects, and few objects can hold much memory.
"""
STATM: Final = Path("/proc/self/statm")


class HealthSign(Protocol):
    """Loop or thread that can be dead or hang."""

    def is_unhealthy(self, patience: float) -> bool:
        """Return True if it is dead, or hangs for longer than `patience` seconds."""


class Watchdog:
    """Loop that cancels overdue handlers and reports its process's health, five times a second."""

    def __init__(
        self,
        limits: Settings,
        shared_state: SharedState,
        runs: HandlerRuns,
        signs: Sequence[HealthSign],
        check_pools: Callable[[float], None],
        count_done: Callable[[], int],
        retire: Callable[[str], None],
    ) -> None:
        """`check_pools` gets `LIVENESS_TIMEOUT` in seconds, at each pass.

        `count_done` returns how many jobs are done. `retire` gets the reason to end the process,
        once.
        """
        self._limits, self._shared_state, self._runs = limits, shared_state, runs
        self._signs, self._check_pools = signs, check_pools
        self._count_done, self._retire = count_done, retire
        self._unhealthy = Debounce()
        self._is_retiring = False
        self._collect_at = 0

    def tick(self) -> float:
        """Cancel overdue runs, report the health, and retire the process if that is due.

        Return the seconds to sleep.
        """
        running = self._runs.current()
        for run in running:
            self._cancel_overdue(run)
        patience = self._limits.LIVENESS_TIMEOUT.total_seconds()
        # Before the heartbeat: an unhealthy one makes the supervisor end this process.
        self._check_pools(patience)
        is_unhealthy = any(sign.is_unhealthy(patience) for sign in self._signs)
        self._shared_state.beat(is_healthy=not self._unhealthy.observe(is_unhealthy))
        self._collect_garbage()
        if not self._is_retiring and (reason := self._reason_to_retire(running)):
            self._is_retiring = True
            self._retire(reason)
        return LOOK

    def _collect_garbage(self) -> None:
        """Collect garbage if the process has grown by `GROWTH` since the last time."""
        if resident_bytes() >= self._collect_at:
            gc.collect()
            self._collect_at = resident_bytes() + GROWTH

    def _cancel_overdue(self, run: HandlerRun) -> None:
        handler = run.job.handler
        time_limit = (run.job.timeout or self._limits.HANDLER_TIMEOUT).total_seconds()
        limits = (run.started_at + time_limit, run.job.hard_end - BEFORE_HARD_END, run.job.end_by)
        end = min(limits)
        if time.monotonic() >= end and run.cancel(CancelReason.TIMED_OUT):
            emit(JobTimedOut(run.job.id, *handler.names, run.seconds))

    def _reason_to_retire(self, running: Sequence[HandlerRun]) -> str:
        """Return the reason to replace this process, or an empty string if there is none."""
        limits = self._limits
        stuck = [
            run for run in running if run.slot < limits.CONCURRENCY and run.is_stuck(CANCEL_GRACE)
        ]
        if len(stuck) >= limits.CONCURRENCY:
            return "every thread is stuck in a cancelled job"
        if not (done := self._count_done()):
            return ""  # A limit that is too low must not keep every process from doing a job.
        if limits.MAX_JOBS is not None and done >= limits.MAX_JOBS:
            return f"it has done {done} jobs"
        if limits.MAX_MEMORY is not None and (used := resident_bytes()) >= limits.MAX_MEMORY:
            return f"it uses {used / 2**20:.0f} MiB"
        return ""


def resident_bytes() -> int:
    """Return the bytes of memory of this process, or their peak where only that is reported."""
    if STATM.exists():
        return int(STATM.read_text().split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
