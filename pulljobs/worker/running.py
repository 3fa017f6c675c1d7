"""What runs now, in threads and on the event loop, and how to end it from any thread."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

from pulljobs.handlers import ClaimedJob
from pulljobs.outcomes import Held
from pulljobs.telemetry import is_counting


class Ended(StrEnum):
    """Why a run is over before its handler is."""

    LOST = "lost"
    """Somebody else has the job, or nobody: nothing is written."""
    TIMED_OUT = "timed_out"
    """Over its budget: tried again by the retry strategy."""
    STOPPED = "stopped"
    """The worker stops: given back, nothing is charged."""


class Cancelled(NamedTuple):
    why: Ended
    at: float


class Run:
    """One handler at one job. Its own word on the job counts, unless somebody cancels it first."""

    __slots__ = ("_first_word", "_on_cancel", "job", "slot", "started_at", "thread")

    def __init__(self, job: ClaimedJob, slot: int, on_cancel: Callable[["Run"], None]) -> None:
        self.job, self.slot = job, slot
        self.started_at = time.monotonic()
        self.thread = threading.get_ident()
        self._on_cancel = on_cancel
        # Of its end; `setdefault` lets one thread through, and takes less than a lock.
        self._first_word: dict[None, Cancelled | None] = {}

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started_at

    @property
    def ended(self) -> Ended | None:
        """Why it was cancelled."""
        cancelled = self._first_word.get(None)
        return cancelled and cancelled.why

    def is_stuck(self, seconds: float) -> bool:
        """Whether it goes on for so long after it was cancelled."""
        cancelled = self._first_word.get(None)
        return cancelled is not None and time.monotonic() - cancelled.at > seconds

    def cancel(self, why: Ended) -> bool:
        """The handler sees `job.lost`, an async one is cancelled too; what it says is discarded.

        False: it is over, or was cancelled before.
        """
        ours = Cancelled(why, time.monotonic())
        if self._first_word.setdefault(None, ours) is not ours:
            return False
        self.job.taken_away = True
        self._on_cancel(self)
        return True

    def end(self) -> Ended | None:
        """Said by who ran it, at its end: why its word does not count, if it doesn't."""
        cancelled = self._first_word.setdefault(None, None)
        return cancelled and cancelled.why


class Runs:
    """Every run of this process; for all its threads."""

    def __init__(self) -> None:
        self._runs: dict[Run, None] = {}
        self._times: deque[tuple[tuple[str, str], float]] | None = (
            deque() if is_counting() else None
        )
        """Places and seconds of runs that have ended; None: nobody wants to know."""

    def begin(self, job: ClaimedJob, slot: int, on_cancel: Callable[[Run], None]) -> Run:
        """`on_cancel` is called once, in the thread that cancels."""
        run = Run(job, slot, on_cancel)
        self._runs[run] = None
        return run

    def end(self, run: Run) -> Ended | None:
        self._runs.pop(run, None)
        if self._times is not None:
            self._times.append((run.job.handler.place, run.seconds))
        return run.end()

    def ended_since(self) -> Iterator[tuple[tuple[str, str], float]]:
        """Of those that have ended since this was asked: whose job, and for how many seconds."""
        while self._times:
            yield self._times.popleft()

    def cancel(self, held: Held, why: Ended) -> bool:
        """Rare, so it is looked for; under what is held they would cost every job its hashing."""
        return any(run.cancel(why) for run in self.now() if run.job.held == held)

    def now(self) -> list[Run]:
        return list(self._runs)
