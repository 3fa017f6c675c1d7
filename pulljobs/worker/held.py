"""What this process holds: jobs claimed and not yet settled in the database."""

import threading
import time
from collections.abc import Iterable

from pulljobs.handlers import ClaimedJob


class Holdings:
    """Every held job by id; for all threads of the worker."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._jobs: dict[int, ClaimedJob] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def room(self) -> int:
        return self._limit - len(self._jobs)

    def add(self, jobs: Iterable[ClaimedJob]) -> None:
        with self._lock:
            self._jobs.update((job.held.job_id, job) for job in jobs)

    def drop(self, ids: Iterable[int]) -> None:
        with self._lock:
            for id in ids:
                self._jobs.pop(id, None)

    def due(self) -> list[ClaimedJob]:
        """Jobs whose lease wants renewing."""
        now = time.monotonic()
        with self._lock:
            return [job for job in self._jobs.values() if job.renew_at <= now]

    def ids(self) -> list[int]:
        with self._lock:
            return sorted(self._jobs)
