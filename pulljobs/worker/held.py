"""What this process holds: jobs claimed and not yet settled in the database."""

import threading
import time
from collections.abc import Collection, Iterable
from uuid import UUID

from pulljobs.handlers import ClaimedJob
from pulljobs.outcomes import Held


class Holdings:
    """Every held job; for all threads of the worker.

    By lease, too: a job that was lost may be claimed again while its first handler still runs.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._jobs: dict[Held, ClaimedJob] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, held: Held) -> bool:
        return held in self._jobs

    @property
    def room(self) -> int:
        return self._limit - len(self._jobs)

    def add(self, jobs: Iterable[ClaimedJob]) -> None:
        with self._lock:
            self._jobs.update((job.held, job) for job in jobs)

    def drop(self, settled: Iterable[Held]) -> None:
        with self._lock:
            for held in settled:
                self._jobs.pop(held, None)

    def due(self) -> list[ClaimedJob]:
        """Jobs whose lease wants renewing."""
        now = time.monotonic()
        with self._lock:
            return [job for job in self._jobs.values() if job.renew_at <= now]

    def doubt(self, job_ids: Collection[int] | None = None) -> None:
        """Let the flusher ask whether these are held still; None: all of them."""
        now = time.monotonic()
        asked = None if job_ids is None else frozenset(job_ids)
        with self._lock:
            for job in self._jobs.values():
                if (asked is None or job.id in asked) and job.renew_at < float("inf"):
                    job.renew_at = min(job.renew_at, now)

    def tokens(self) -> frozenset[UUID]:
        with self._lock:
            return frozenset(held.token for held in self._jobs)
