"""Isolation of crash suspects: jobs that may have ended a process or blocked its event loop."""

from collections import deque
from collections.abc import Iterable

from pulljobs.handlers import ClaimedJob
from pulljobs.worker.in_flight import InFlightJobs
from pulljobs.worker.job_pool import JobPool
from pulljobs.worker.renewer import record_start
from pulljobs.worker.result_buffer import ResultBuffer


class Isolation:
    """Queue of crash suspects, which run alone in their process: a second crash proves the cause.

    While a suspect waits or runs, the fetcher claims nothing, and other in-flight jobs end first.
    """

    def __init__(self, in_flight: InFlightJobs, buffer: ResultBuffer) -> None:
        self._in_flight, self._buffer = in_flight, buffer
        self._waiting: deque[tuple[JobPool, ClaimedJob]] = deque()
        self._running: ClaimedJob | None = None

    @property
    def is_empty(self) -> bool:
        return not self._waiting and self._running is None

    def add(self, pool: JobPool, suspects: Iterable[ClaimedJob]) -> None:
        """Queue suspects that will run in that pool."""
        self._waiting.extend((pool, job) for job in suspects)

    def start_next(self) -> None:
        """Start the next suspect if only waiting suspects are in flight.

        Its start is recorded in the database first: if this machine is lost, the job is known to
        have run.
        """
        if self._running is not None and self._running not in self._in_flight:
            self._running = None
        if self._waiting and len(self._in_flight) == len(self._waiting):
            # Taken out first: a stop of the worker releases the waiting ones meanwhile.
            self._start(*self._waiting.popleft())

    def _start(self, pool: JobPool, job: ClaimedJob) -> None:
        is_recorded = False
        try:
            is_recorded = record_start(job)
        finally:
            if not (is_recorded or job.taken_away):  # A later pass tries again.
                self._waiting.appendleft((pool, job))
        if is_recorded:
            self._running = job
            pool.take([job])
        elif job.taken_away:
            self._buffer.release(job)

    def release_waiting(self) -> None:
        """Release all suspects that have not started."""
        while self._waiting:
            _pool, job = self._waiting.popleft()
            self._buffer.release(job)
