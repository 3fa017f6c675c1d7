"""What was said of jobs, on its way to the flusher."""

from collections import deque
from collections.abc import Callable
from typing import Final

from pulljobs.engine import outcomes
from pulljobs.engine.circuit import Result
from pulljobs.engine.outcomes import DELIVER, Settlement
from pulljobs.handlers import ClaimedJob
from pulljobs.states import Event
from pulljobs.worker.runs import Runs

Said = tuple[ClaimedJob, Settlement | None]
SUCCESS: Final = Result.SUCCESS
VERDICTS: Final = {
    Event.DELIVER: Result.SUCCESS,
    Event.REJECT: Result.SUCCESS,
    Event.RETRY: Result.FAILURE,
    Event.RELEASE: Result.NEUTRAL,
}
"""A handler that rejects a job has done its work; one that fails by its policy has not."""


class Outbox:
    """Every lane says here what became of its jobs; for all threads of the worker."""

    def __init__(self) -> None:
        self.said: deque[Said] = deque()
        """None: nothing is to be written, it is only held no more."""
        self.runs = Runs()
        self._many, self._on_many = 0, _nobody

    def tell_of(self, many: int, on_many: Callable[[], None]) -> None:
        """Call that whenever something is said and so many are waiting to be written."""
        self._many, self._on_many = many, on_many

    def say(self, job: ClaimedJob, settlement: Settlement | None) -> None:
        is_plain = settlement is not None and settlement.event is DELIVER and job.verdict is None
        # Nearly all are; and an enum takes long to hash.
        job.report_end(SUCCESS if is_plain else _result(job, settlement))
        self.said.append((job, settlement))
        if len(self.said) >= self._many:
            self._on_many()

    def release(self, job: ClaimedJob) -> None:
        """Never started: if its lease is over but not yet taken away, nothing is charged."""
        job.report_end(Result.NEUTRAL)
        self.said.append((job, None if job.taken_away else outcomes.release(job.held)))

    def end(self, job: ClaimedJob, settlement: Settlement | None) -> None:
        """Its handler is done; its word counts unless the run was cancelled, and then said on."""
        if self.runs.end(job) is None:
            self.say(job, settlement)


def _nobody() -> None:
    """Whom it tells of what was said until somebody wants to know."""


def _result(job: ClaimedJob, settlement: Settlement | None) -> Result:
    """What its end tells of the next one; the executor has the first word."""
    if job.verdict is not None:
        return job.verdict
    return Result.NEUTRAL if settlement is None else VERDICTS[settlement.event]
