"""What runs now, in threads and on the event loop, and how to end it from any thread."""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from pulljobs.engine.outcomes import Held
from pulljobs.engine.telemetry import is_counting
from pulljobs.handlers import ClaimedJob

NOWHERE: Final = sys.maxsize
"""The slot of a push delivery: it runs no code of others, so no crash is blamed on it."""


class Ended(StrEnum):
    """Why a run is over before its handler is."""

    LOST = "lost"
    """Somebody else has the job, or nobody: nothing is written."""
    TIMED_OUT = "timed_out"
    """Over its budget: tried again by the retry strategy."""
    BLOCKED = "blocked"
    """It keeps the event loop from turning: tried again by the retry strategy, and alone."""
    STOPPED = "stopped"
    """The worker stops: given back, nothing is charged."""


class Cancelled(NamedTuple):
    why: Ended
    at: float


class Slot(NamedTuple):
    """Where handlers run: one for all that a thread runs, for to make it takes as long as a run."""

    runs: "Runs"
    number: int
    thread: int
    on_cancel: Callable[["Run"], None]
    """Called once, in the thread that cancels."""


class Run(NamedTuple):
    """One handler at one job, as it was when somebody asked.

    Its own word on the job counts, unless somebody cancels it first.
    """

    job: ClaimedJob
    where: Slot
    started_at: float
    """Of the monotonic clock."""
    cancelled: Cancelled | None = None

    @property
    def slot(self) -> int:
        return self.where.number

    @property
    def thread(self) -> int:
        return self.where.thread

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started_at

    @property
    def ended(self) -> Ended | None:
        """Why it was cancelled."""
        return self.cancelled and self.cancelled.why

    def is_stuck(self, seconds: float) -> bool:
        """Whether it goes on for so long after it was cancelled."""
        cancelled = self.cancelled
        return cancelled is not None and time.monotonic() - cancelled.at > seconds

    def cancel(self, why: Ended) -> bool:
        """The handler sees `job.lost`, an async one is cancelled too; what it says is discarded.

        False: it is over, or was cancelled before.
        """
        cancelled = self._replace(cancelled=Cancelled(why, time.monotonic()))
        if not self.where.runs.claim_word(cancelled):
            return False
        self.job.taken_away = True
        self.where.on_cancel(cancelled)
        return True


class Runs:
    """Every run of this process; for all its threads."""

    def __init__(self) -> None:
        # Who takes a job out of these has the first word on its run: less work than a lock. And
        # a run is made of it for who asks: that would take as long as all the rest.
        self._open: dict[ClaimedJob, tuple[Slot, float]] = {}
        self._cancelled: dict[ClaimedJob, Run] = {}
        """Whose handlers have not ended yet."""
        self._cancelling = threading.Lock()
        self._times: deque[tuple[tuple[str, str], float]] | None = (
            deque() if is_counting() else None
        )
        """Places and seconds of runs that have ended; None: nobody wants to know."""

    def slot(self, number: int, on_cancel: Callable[[Run], None]) -> Slot:
        """One of the thread that asks for it."""
        return Slot(self, number, threading.get_ident(), on_cancel)

    def begin(self, job: ClaimedJob, slot: Slot, now: float) -> None:
        """`now` of the monotonic clock."""
        self._open[job] = slot, now

    def end(self, job: ClaimedJob) -> Run | None:
        """Said once by who ran it: the run, if it was cancelled and so has no word."""
        if (begun := self._open.pop(job, None)) is not None:
            cancelled, (_slot, started_at) = None, begun
        else:
            cancelled = self._cancelled.pop(job)
            started_at = cancelled.started_at
        if self._times is not None:
            self._times.append((job.handler.path, time.monotonic() - started_at))
        return cancelled

    def claim_word(self, run: Run) -> bool:
        """Whether nobody had a word on it before, for who cancels it."""
        with self._cancelling:
            if run.job not in self._open:
                return False
            # Before it is taken out: from then on its end goes by this.
            self._cancelled[run.job] = run
            if self._open.pop(run.job, None) is not None:
                return True
            del self._cancelled[run.job]
            return False

    def ended_since(self) -> Iterator[tuple[tuple[str, str], float]]:
        """Of those that have ended since this was asked: whose job, and for how many seconds."""
        while self._times:
            yield self._times.popleft()

    def cancel(self, held: Held, why: Ended) -> bool:
        """Rare, so it is looked for; under what is held they would cost every job its hashing."""
        return any(run.cancel(why) for run in self.now() if run.job.held == held)

    def now(self) -> list[Run]:
        """With those that were cancelled and go on."""
        begun = self._open.copy()
        running = {job: Run(job, slot, since) for job, (slot, since) in begun.items()}
        return list((running | self._cancelled).values())
