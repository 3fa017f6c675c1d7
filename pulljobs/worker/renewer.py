"""Renewal of leases: when the lease of an in-flight job is renewed, and what a lost lease causes.

The renewer is a loop with a connection of its own, so that no write of the flusher can delay it. It
renews every lease of which a third is over, running or not, until the outcome of the job is
written. A handler may renew the lease of its own job at any time with `ClaimedJob.renew`.
"""

import threading
import time
from collections import Counter
from collections.abc import Collection, Set
from datetime import timedelta
from itertools import groupby
from operator import attrgetter
from typing import Final

from django.db import connections

from pulljobs import pulling
from pulljobs.conf import settings
from pulljobs.engine.outcomes import Held
from pulljobs.engine.telemetry import LeasesLost, emit
from pulljobs.handlers import ClaimedJob
from pulljobs.storage import progress
from pulljobs.worker.in_flight import InFlightJobs
from pulljobs.worker.runs import CancelReason, HandlerRuns

CHECK_EVERY: Final = 0.2
"""Longest time in seconds between two checks of all in-flight jobs."""
PROGRESS_EVERY: Final = 1.0
"""Seconds between two writes of the progress of jobs."""
LOCKED_AGAIN: Final = 0.5
"""Seconds after which a lease that another transaction has locked is renewed."""
NEVER: Final = float("inf")


def renew_after(lease_duration: timedelta) -> float:
    """Return the seconds after which a lease of that duration is renewed: a third of it."""
    return lease_duration.total_seconds() / 3


class Renewer:
    """Loop that renews the leases of all in-flight jobs and waits for no lock."""

    def __init__(self, in_flight: InFlightJobs, runs: HandlerRuns) -> None:
        self._in_flight, self._runs = in_flight, runs
        self._reports_nothing_running = threading.Event()
        self._progress_at = float("-inf")

    def tick(self) -> float:
        """Renew the due leases, one statement per lease duration. Return the seconds to sleep."""
        due = sorted(self._in_flight.due_for_renewal(), key=attrgetter("lease_duration"))
        for lease_duration, group in groupby(due, key=attrgetter("lease_duration")):
            jobs = list(group)
            before = time.monotonic()
            helds = [job.held for job in jobs]
            renewed = pulling.renew(helds, lease_duration, running=self._running())
            self._note(jobs, renewed.keys(), before)
        self._write_progress()
        return CHECK_EVERY

    def _write_progress(self) -> None:
        """Write the progress that jobs have reported, but at most once a second."""
        now = time.monotonic()
        if progress.has_reports() and now >= self._progress_at:
            self._progress_at = now + PROGRESS_EVERY
            progress.write(settings().DATABASE)

    def stop_charging(self, running: Collection[int]) -> None:
        """Make the leases of `running` jobs due, and record with the renewal that no job runs.

        So no retry is counted for jobs that a stop of the worker cuts off. The caller wakes the
        loop.
        """
        self._reports_nothing_running.set()
        self._in_flight.request_renewal(running)

    @property
    def has_to_stop_charging(self) -> bool:
        """True from `stop_charging` until the renewal that it asked for is written."""
        return self._reports_nothing_running.is_set() and any(self._in_flight.due_for_renewal())

    def _running(self) -> list[int]:
        """Return the ids of the jobs for which a retry is counted if this process dies."""
        if self._reports_nothing_running.is_set():
            return []
        return [run.job.id for run in self._runs.current() if run.cancel_reason is None]

    def _note(self, jobs: list[ClaimedJob], renewed: Set[Held], before: float) -> None:
        """Note which jobs a statement sent at `before` renewed. Cancel handlers of lost ones."""
        missing = []
        for job in jobs:
            if job.held in renewed:
                job.extend(before)
            elif job.renew_at <= before and not job.is_settled:
                missing.append(job)
        if missing:
            self._note_missing(missing)

    def _note_missing(self, missing: list[ClaimedJob]) -> None:
        """Ask the database which jobs without a renewal are lost, and cancel their handlers.

        Jobs whose outcomes are written are not lost. The leases of the others are locked by other
        transactions, and renewed a little later.
        """
        held = pulling.still_held([job.held for job in missing])
        writing = {job for job, _outcome in self._in_flight.writing}
        lost: Counter[tuple[str, str]] = Counter()
        for job in missing:
            if job.held in held:
                job.renew_at = time.monotonic() + LOCKED_AGAIN
            elif job in self._in_flight and job not in writing:  # else its outcome is written
                job.taken_away, job.renew_at = True, NEVER
                self._runs.cancel(job.held, CancelReason.LOST)
                lost[job.handler.names] += 1
        for names, count in lost.items():
            emit(LeasesLost(count, *names))


def record_start(job: ClaimedJob) -> bool:
    """Renew the lease of a job and record that it runs. Return False if that was not possible.

    The job is lost then, and `taken_away` is True, or another transaction has its lease locked.
    """
    before = time.monotonic()
    if job.held in pulling.renew([job.held], job.lease_duration, running=[job.id]):
        job.extend(before)
        return True
    if not pulling.still_held([job.held]):
        job.taken_away, job.renew_at = True, NEVER
    return False


def renew_now(job: ClaimedJob) -> bool:
    """Renew the lease of a job at the request of its handler. Return False if the job is lost.

    In a transaction, or while the lease is locked, leave it to the renewer. The lease of a settled
    job is not renewed.
    """
    if job.is_settled:
        return not job.lost
    before = time.monotonic()
    if connections[settings().DATABASE].in_atomic_block:
        # A renewal in the handler's transaction would lock the lease and count from its commit
        # only, so the renewer does it.
        job.renew_at = before
        return not job.lost
    if job.held in pulling.renew([job.held], job.lease_duration):
        job.extend(before)
        return True
    if pulling.still_held([job.held]):  # Another transaction has its lease locked.
        job.renew_at = before
        return not job.lost
    job.taken_away, job.renew_at = True, NEVER
    return False
