"""In-flight jobs: those that this process has claimed and not yet settled or given back."""

import threading
import time
from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from pulljobs.handlers import ClaimedJob


def payload_bytes(jobs: Iterable[ClaimedJob]) -> int:
    """Return the bytes of the payloads of these jobs together."""
    return sum(len(job.payload) for job in jobs)


class InFlightJobs:
    """All in-flight jobs, shared by all threads of the process.

    A job that was lost and claimed again is in flight twice while its first handler still runs.
    """

    def __init__(self, limit: int, limit_bytes: int) -> None:
        self._limit, self._limit_bytes = limit, limit_bytes
        self._bytes = 0
        """Bytes of the payloads of all jobs."""
        self._jobs: dict[ClaimedJob, None] = {}
        self._lock = threading.Lock()
        self.writing: Sequence[tuple[ClaimedJob, object]] = ()
        """Results that the flusher writes or wrote last, which ends the leases of their jobs."""

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: ClaimedJob) -> bool:
        return job in self._jobs

    def job_ids(self) -> tuple[int, ...]:
        """Return the ids of all jobs, in the order of their claims."""
        with self._lock:
            return tuple(job.id for job in self._jobs)

    def room(self, payload_bytes: float) -> int:
        """Return how many more jobs of `payload_bytes` each fit the limits of jobs and of bytes.

        If no job is in flight, there is room for one of any size.
        """
        room = self._limit - len(self._jobs)
        if self._jobs and self._bytes >= self._limit_bytes:
            return 0  # Even if `payload_bytes` is not known yet, and therefore 0.
        if room * payload_bytes <= (free := self._limit_bytes - self._bytes):
            return room
        # A job that is larger than the limit itself is claimed when no other job is in flight.
        return max(int(free / payload_bytes), 0 if self._jobs else 1)

    def add(self, jobs: Collection[ClaimedJob]) -> None:
        """Add jobs that were just claimed."""
        with self._lock:
            self._jobs.update(dict.fromkeys(jobs))
            self._bytes += payload_bytes(jobs)

    def drop(self, settled: Iterable[ClaimedJob]) -> None:
        """Drop jobs whose outcomes are written. Unknown jobs are ignored."""
        with self._lock:
            known = [job for job in settled if self._jobs.pop(job, job) is None]
            self._bytes -= payload_bytes(known)

    def due_for_renewal(self) -> list[ClaimedJob]:
        """Return the jobs whose lease has to be renewed now."""
        now = time.monotonic()
        with self._lock:
            return [job for job in self._jobs if job.renew_at <= now]

    def request_renewal(self, job_ids: Collection[int] | None = None) -> None:
        """Make the leases of these jobs due for renewal at once, by default those of all jobs.

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
