"""Result buffer: outcomes of jobs on their way to the flusher."""

from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from pulljobs.engine import outcomes
from pulljobs.engine.circuit import Result
from pulljobs.engine.outcomes import DELIVER, UNREPORTED, Settlement
from pulljobs.handlers import ClaimedJob
from pulljobs.states import Event
from pulljobs.worker.runs import HandlerRuns, end_now
from pulljobs.worker.throttles import Throttles

BufferedResult = tuple[ClaimedJob, Settlement | None]
"""Job and its outcome. With None nothing is written: the job is only in flight no more."""
SUCCESS: Final = Result.SUCCESS
RESULTS: Final = {
    Event.DELIVER: Result.SUCCESS,
    Event.REJECT: Result.SUCCESS,
    Event.RETRY: Result.FAILURE,
    Event.RELEASE: Result.NEUTRAL,
    Event.SUSPEND: Result.SUCCESS,
}
"""Results for the circuit: a handler that rejects a job has worked well, a retry is a failure."""


class ResultBuffer:
    """Outcomes that job pools report, in their order, for all threads of the process."""

    def __init__(self) -> None:
        self.results: deque[BufferedResult] = deque()
        self.runs = HandlerRuns()
        self.throttles = Throttles(lambda: self._on_full())
        self._full_size, self._on_full = 0, _do_nothing

    def notify_at(self, size: int, on_full: Callable[[], None]) -> None:
        """Call `on_full` whenever `add` leaves at least that many outcomes in the buffer.

        Each throttle that a handler asks for calls it as well, because the flusher writes it.
        """
        self._full_size, self._on_full = size, on_full

    def add(self, job: ClaimedJob, settlement: Settlement | None) -> None:
        """Add the outcome of a job and report its result to the circuit.

        With None nothing is written, but the job is no longer in flight.
        """
        if settlement is not None and settlement.run is UNREPORTED:
            settlement = with_run(settlement, job)
        # Nearly all outcomes are plain deliveries, and hashing an enum is slow.
        is_plain = settlement is not None and settlement.event is DELIVER and job.verdict is None
        job.report_end(SUCCESS if is_plain else _result(job, settlement))
        self.results.append((job, settlement))
        if len(self.results) >= self._full_size:
            self._on_full()

    def release(self, job: ClaimedJob) -> None:
        """Release a job that has not started: no retry is counted."""
        job.report_end(Result.NEUTRAL)
        self.results.append((job, None if job.taken_away else outcomes.release(job.held)))

    def give_back(self, job: ClaimedJob, after: timedelta) -> None:
        """Release a job that its circuit did not admit, to be claimed again after a time."""
        self.results.append((job, outcomes.release(job.held, after=after)))

    def end(self, job: ClaimedJob, settlement: Settlement | None) -> None:
        """Note that a job's handler ended, and add its outcome unless the run was cancelled."""
        if self.runs.end(job) is None:
            self.add(job, settlement)


def with_run(settlement: Settlement, job: ClaimedJob) -> Settlement:
    """Return the outcome with the start and run time of its job: until now if it has not ended."""
    end_now(job)
    return settlement._replace(run=job)


def _do_nothing() -> None:
    """Ignore a full buffer, until `notify_at` is called."""


def _result(job: ClaimedJob, settlement: Settlement | None) -> Result:
    """Return the result that the circuit counts: `job.verdict` if set, else that of the outcome.

    It is neutral without an outcome.
    """
    if job.verdict is not None:
        return job.verdict
    return Result.NEUTRAL if settlement is None else RESULTS[settlement.event]
