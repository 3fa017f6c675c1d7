"""What was said of jobs, on its way to the flusher."""

from collections import deque
from collections.abc import Callable

from pulljobs import outcomes
from pulljobs.handlers import ClaimedJob
from pulljobs.outcomes import Settlement
from pulljobs.worker.running import Run, Runs

Said = tuple[ClaimedJob, Settlement | None]


class Outbox:
    """Every lane says here what became of its jobs; for all threads of the worker."""

    def __init__(self) -> None:
        self.said: deque[Said] = deque()
        """None: nothing is to be written, it is only held no more."""
        self.runs = Runs()
        self.on_said: Callable[[], None] = lambda: None

    def say(self, job: ClaimedJob, settlement: Settlement | None) -> None:
        self.said.append((job, settlement))
        self.on_said()

    def release(self, job: ClaimedJob) -> None:
        """Never started: if its lease is over but not yet taken away, nothing is charged."""
        self.said.append((job, None if job.taken_away else outcomes.release(job.held)))

    def end(self, run: Run, settlement: Settlement | None) -> None:
        """Its handler is done; its word counts unless the run was cancelled, and then said on."""
        if self.runs.end(run) is None:
            self.say(run.job, settlement)
