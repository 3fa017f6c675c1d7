"""The watch: ends what runs for too long, and says whether this process is well, or worn."""

import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from pulljobs.conf import Settings
from pulljobs.engine.telemetry import JobTimedOut, emit
from pulljobs.worker.debounce import Steady
from pulljobs.worker.runs import Ended, Run, Runs
from pulljobs.worker.shared_state import Board

LOOK: Final = 0.2
HEED: Final = 0.3
"""Seconds in which a thread whose job was ended may come to its end."""
BEFORE_HARD_END: Final = 0.5
"""Seconds; what is over its time is settled before its lease can't be renewed any more."""
STATM: Final = Path("/proc/self/statm")


class Sign(Protocol):
    """Of life."""

    def is_sick(self, patience: float) -> bool: ...


class Watch:
    """Loop: a few looks a second, `mind` at each; `retire` is called once, with a reason."""

    def __init__(
        self,
        limits: Settings,
        board: Board,
        runs: Runs,
        signs: Sequence[Sign],
        mind: Callable[[float], None],
        done: Callable[[], int],
        retire: Callable[[str], None],
    ) -> None:
        self._limits, self._board, self._runs = limits, board, runs
        self._signs, self._mind, self._done, self._retire = signs, mind, done, retire
        self._sick = Steady()
        self._is_retiring = False

    def tick(self) -> float:
        running = self._runs.now()
        for run in running:
            self._end_overdue(run)
        patience = self._limits.LIVENESS_TIMEOUT.total_seconds()
        self._mind(patience)  # Before the supervisor hears of it, and ends this process.
        is_sick = any(sign.is_sick(patience) for sign in self._signs)
        self._board.beat(is_well=not self._sick.look(is_sick))
        if not self._is_retiring and (reason := self._wear(running)):
            self._is_retiring = True
            self._retire(reason)
        return LOOK

    def _end_overdue(self, run: Run) -> None:
        handler = run.job.handler
        budget = (handler.timeout or self._limits.HANDLER_TIMEOUT).total_seconds()
        end = min(run.started_at + budget, run.job.hard_end - BEFORE_HARD_END)
        if time.monotonic() >= end and run.cancel(Ended.TIMED_OUT):
            emit(JobTimedOut(run.job.id, *handler.path, run.seconds))

    def _wear(self, running: Sequence[Run]) -> str:
        """Why another process had better go on; empty: it needn't."""
        limits = self._limits
        stuck = [run for run in running if run.slot < limits.CONCURRENCY and run.is_stuck(HEED)]
        if len(stuck) >= limits.CONCURRENCY:
            return "every thread is stuck in a job that was ended"
        if not (done := self._done()):
            return ""  # Else a limit that is too low would keep all from being done.
        if limits.MAX_JOBS is not None and done >= limits.MAX_JOBS:
            return f"it has done {done} jobs"
        if limits.MAX_MEMORY is not None and (used := resident()) >= limits.MAX_MEMORY:
            return f"it uses {used / 2**20:.0f} MiB"
        return ""


def resident() -> int:
    """Bytes of memory that this process uses; at most used, where the system tells no more."""
    if STATM.exists():
        return int(STATM.read_text().split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
