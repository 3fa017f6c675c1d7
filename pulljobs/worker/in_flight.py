"""In-flight jobs: those that this process has claimed and not yet settled in the database."""

import threading
import time
from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from pulljobs.handlers import ClaimedJob


class InFlightJobs:
    """All in-flight jobs, shared by all threads of the process.

    A job that was lost and claimed again is in flight twice while its first handler still runs.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._jobs: dict[ClaimedJob, None] = {}
        self._lock = threading.Lock()
        self.writing: Sequence[tuple[ClaimedJob, object]] = ()
        """Results that the flusher is writing: the leases of their jobs end at any moment."""

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: ClaimedJob) -> bool:
        return job in self._jobs

    @property
    def room(self) -> int:
        """Number of jobs that may still be claimed."""
        return self._limit - len(self._jobs)

    def add(self, jobs: Iterable[ClaimedJob]) -> None:
        """Add jobs that were just claimed."""
        with self._lock:
            self._jobs.update(dict.fromkeys(jobs))

    def drop(self, settled: Iterable[ClaimedJob]) -> None:
        """Drop jobs whose outcomes are written. Unknown jobs are ignored."""
        with self._lock:
            for job in settled:
                self._jobs.pop(job, None)

    def due_for_renewal(self) -> list[ClaimedJob]:
        """Return the jobs whose lease has to be renewed now."""
        now = time.monotonic()
        with self._lock:
            return [job for job in self._jobs if job.renew_at <= now]

    def request_renewal(self, job_ids: Collection[int] | None = None) -> None:
        """Make the leases of these jobs due at once, of all jobs by default.

        The renewal finds out which of them are lost. The caller wakes the renewer.
        """
        now = time.monotonic()
        requested = None if job_ids is None else frozenset(job_ids)
        with self._lock:
            for job in self._jobs:
                is_requested = requested is None or job.id in requested
                if is_requested and job.renew_at < float("inf"):
                    job.renew_at = min(job.renew_at, now)

    def lease_tokens(self) -> frozenset[UUID]:
        """Return the tokens of all leases under which jobs are in flight."""
        with self._lock:
            return frozenset(job.held.lease_token for job in self._jobs)
