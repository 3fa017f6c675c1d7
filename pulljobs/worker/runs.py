"""Runs of handlers, in threads and on the event loop, and their cancellation from any thread."""

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

NO_SLOT: Final = sys.maxsize
"""Slot number of push deliveries, which run no code of the project and cause no crash."""


class CancelReason(StrEnum):
    """Reason why the run of a handler was cancelled before the handler ended."""

    LOST = "lost"
    """The lease is lost: nothing is written."""
    TIMED_OUT = "timed_out"
    """The handler ran over its time limit: retried by the retry strategy."""
    BLOCKED = "blocked"
    """The handler blocks the event loop: retried by the retry strategy, and in isolation."""
    STOPPED = "stopped"
    """The worker stops: released without counting a retry."""


class Cancellation(NamedTuple):
    """Reason and time of a cancellation, on the monotonic clock."""

    reason: CancelReason
    at: float


class RunSlot(NamedTuple):
    """Slot of a job pool, in which handlers run one after another, and its thread."""

    runs: "HandlerRuns"
    number: int
    thread: int
    on_cancel: Callable[["HandlerRun"], None]
    """Function that is called once for a cancelled run, in the thread that cancels it."""


class HandlerRun(NamedTuple):
    """Snapshot of one handler's run of one job.

    The end of the handler decides the outcome, unless another thread cancels the run first.
    """

    job: ClaimedJob
    place: RunSlot
    started_at: float
    """Time of the monotonic clock at which the handler began."""
    cancelled: Cancellation | None = None

    @property
    def slot(self) -> int:
        return self.place.number

    @property
    def thread(self) -> int:
        return self.place.thread

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started_at

    @property
    def cancel_reason(self) -> CancelReason | None:
        return self.cancelled and self.cancelled.reason

    def is_stuck(self, seconds: float) -> bool:
        """Return True if the run was cancelled more than `seconds` ago."""
        cancelled = self.cancelled
        return cancelled is not None and time.monotonic() - cancelled.at > seconds

    def cancel(self, reason: CancelReason) -> bool:
        """Cancel the run: its further results are discarded, and `job.lost` asks it to stop.

        An outcome that the handler reported before stays. The task of an async handler is
        cancelled, too. Return False if the run has ended or was cancelled before.
        """
        cancelled = self._replace(cancelled=Cancellation(reason, time.monotonic()))
        if not self.place.runs.claim_outcome(cancelled):
            return False
        self.job.taken_away = True
        self.place.on_cancel(cancelled)
        return True


class HandlerRuns:
    """All current runs of handlers in this process, shared by all its threads."""

    def __init__(self) -> None:
        # The thread that takes a job out of this dict decides about its outcome, without a lock.
        # A HandlerRun is made only for a reader: it would cost as much as all the rest of a run.
        self._open: dict[ClaimedJob, RunSlot] = {}
        self._cancelled: dict[ClaimedJob, HandlerRun] = {}
        """Cancelled runs whose handlers have not ended."""
        self._cancelling = threading.Lock()
        self._times: deque[tuple[tuple[str, str], float]] | None = (
            deque() if is_counting() else None
        )
        """Names of consumers and seconds of ended runs, or None if no recorder counts them."""

    def slot(self, number: int, on_cancel: Callable[[HandlerRun], None]) -> RunSlot:
        """Return the slot with this number, in which the calling thread runs handlers.

        `on_cancel` is called with a run of the slot that another thread cancels.
        """
        return RunSlot(self, number, threading.get_ident(), on_cancel)

    def begin(self, job: ClaimedJob, slot: RunSlot, now: float) -> None:
        """Note that the handler of a job begins, at the monotonic time `now`."""
        job.begun_at = now
        self._open[job] = slot

    def end(self, job: ClaimedJob, *, is_started: bool = True) -> HandlerRun | None:
        """Note that the handler of a job ended. Return its run if that was cancelled, else None.

        The return or exception of a cancelled run does not count. With `is_started` False the
        handler was not called: the job has no run time. Only the thread of the handler calls this.
        """
        is_open = self._open.pop(job, None) is not None
        cancelled = None if is_open else self._cancelled.pop(job)
        if not is_started:
            job.begun_at = None
            return cancelled
        begun_at = job.begun_at or 0.0  # `begin` has set it.
        job.run_seconds = seconds = time.monotonic() - begun_at
        if begun_at > job.run_time.due:
            job.run_time.note(seconds, begun_at)
        if self._times is not None:
            self._times.append((job.handler.names, seconds))
        return cancelled

    def claim_outcome(self, run: HandlerRun) -> bool:
        """Mark a run as cancelled, and return True: the calling thread has to decide its outcome.

        Return False if the run has ended, or if another thread cancelled it first.
        """
        with self._cancelling:
            if run.job not in self._open:
                return False
            # Noted before the job leaves `_open`: from then on `end` looks here.
            self._cancelled[run.job] = run
            if self._open.pop(run.job, None) is not None:
                return True
            del self._cancelled[run.job]
            return False

    def take_times(self) -> Iterator[tuple[tuple[str, str], float]]:
        """Yield ((channel, consumer), seconds) of each run that has ended since the last call.

        It yields nothing if no recorder counts run times.
        """
        while self._times:
            yield self._times.popleft()

    def cancel(self, held: Held, reason: CancelReason) -> bool:
        """Cancel the run of this job under this lease. Return False if there was none to cancel.

        It searches all runs: cancellations are rare, and an index would cost every run a hash.
        """
        return any(run.cancel(reason) for run in self.current() if run.job.held == held)

    def begun(self, slots: range) -> list[tuple[ClaimedJob, float]]:
        """Return each job whose handler runs in one of these slots, with the time of its start.

        Cancelled runs are included. The times are of the monotonic clock.
        """
        cancelled = {run.job: run.place for run in [*self._cancelled.values()]}
        runs = self._open.copy() | cancelled
        return [(job, _begin_of(job)) for job, slot in runs.items() if slot.number in slots]

    def current(self) -> list[HandlerRun]:
        """Return the runs of handlers, including cancelled ones whose handlers go on."""
        begun = self._open.copy()
        running = {job: HandlerRun(job, slot, _begin_of(job)) for job, slot in begun.items()}
        return list((running | self._cancelled).values())


def end_now(job: ClaimedJob) -> None:
    """Set `run_seconds` of a job to the seconds since its start, if it has begun and not ended."""
    if job.begun_at is not None and job.run_seconds is None:
        job.run_seconds = time.monotonic() - job.begun_at


def _begin_of(job: ClaimedJob) -> float:
    return job.begun_at or 0.0
