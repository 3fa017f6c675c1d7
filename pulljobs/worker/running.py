"""What runs now, in threads and on the event loop, and how to end it from any thread."""

import threading
import time
from collections.abc import Callable
from enum import StrEnum

from pulljobs.handlers import ClaimedJob
from pulljobs.outcomes import Held


class Ended(StrEnum):
    """Why a run is over before its handler is."""

    LOST = "lost"
    """Somebody else has the job, or nobody: nothing is written."""
    TIMED_OUT = "timed_out"
    """Over its budget: tried again by the retry strategy."""
    STOPPED = "stopped"
    """The worker stops: given back, nothing is charged."""


class Run:
    """One handler at one job. Its own word on the job counts, unless somebody cancels it first."""

    __slots__ = (
        "_lock",
        "_on_cancel",
        "_over",
        "ended",
        "ended_at",
        "job",
        "slot",
        "started_at",
        "thread",
    )

    def __init__(self, job: ClaimedJob, slot: int, on_cancel: Callable[["Run"], None]) -> None:
        self.job, self.slot = job, slot
        self.started_at = time.monotonic()
        self.thread = threading.get_ident()
        self.ended: Ended | None = None
        self.ended_at = 0.0
        self._on_cancel, self._over = on_cancel, False
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started_at

    def is_stuck(self, seconds: float) -> bool:
        """Whether it goes on for so long after it was cancelled."""
        return self.ended is not None and time.monotonic() - self.ended_at > seconds

    def cancel(self, why: Ended) -> bool:
        """The handler sees `job.lost`, an async one is cancelled too; what it says is discarded.

        False: it is over, or was cancelled before.
        """
        with self._lock:
            if self._over or self.ended is not None:
                return False
            self.ended, self.ended_at = why, time.monotonic()
        self.job.taken_away = True
        self._on_cancel(self)
        return True

    def end(self) -> Ended | None:
        """Said by who ran it, at its end: why its word does not count, if it doesn't."""
        with self._lock:
            self._over = True
            return self.ended


class Runs:
    """Every run of this process; for all its threads."""

    def __init__(self) -> None:
        self._runs: dict[Held, Run] = {}

    def begin(self, job: ClaimedJob, slot: int, on_cancel: Callable[[Run], None]) -> Run:
        """`on_cancel` is called once, in the thread that cancels."""
        run = self._runs[job.held] = Run(job, slot, on_cancel)
        return run

    def end(self, run: Run) -> Ended | None:
        self._runs.pop(run.job.held, None)
        return run.end()

    def cancel(self, held: Held, why: Ended) -> bool:
        run = self._runs.get(held)
        return run is not None and run.cancel(why)

    def now(self) -> list[Run]:
        return list(self._runs.values())
