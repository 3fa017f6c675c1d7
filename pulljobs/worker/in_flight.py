"""What this process holds: jobs claimed and not yet settled in the database."""

import threading
import time
from collections.abc import Collection, Iterable
from uuid import UUID

from pulljobs.handlers import ClaimedJob


class Holdings:
    """Every held job; for all threads of the worker.

    One that was lost may be held twice: claimed again while its first handler still runs.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._jobs: dict[ClaimedJob, None] = {}
        self._lock = threading.Lock()
        self.in_doubt = False
        """Somebody wants to know whether jobs are held still: look at once which are due."""

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: ClaimedJob) -> bool:
        return job in self._jobs

    @property
    def room(self) -> int:
        return self._limit - len(self._jobs)

    def add(self, jobs: Iterable[ClaimedJob]) -> None:
        with self._lock:
            self._jobs.update(dict.fromkeys(jobs))

    def drop(self, settled: Iterable[ClaimedJob]) -> None:
        with self._lock:
            for job in settled:
                self._jobs.pop(job, None)

    def due(self) -> list[ClaimedJob]:
        """Jobs whose lease wants renewing."""
        now = time.monotonic()
        with self._lock:
            self.in_doubt = False
            return [job for job in self._jobs if job.renew_at <= now]

    def doubt(self, job_ids: Collection[int] | None = None) -> None:
        """Let the flusher ask whether these are held still; None: all of them."""
        now = time.monotonic()
        asked = None if job_ids is None else frozenset(job_ids)
        with self._lock:
            for job in self._jobs:
                if (asked is None or job.id in asked) and job.renew_at < float("inf"):
                    job.renew_at = min(job.renew_at, now)
            self.in_doubt = True

    def tokens(self) -> frozenset[UUID]:
        with self._lock:
            return frozenset(job.held.lease_token for job in self._jobs)
