"""Renewal of leases: when the lease of an in-flight job is renewed, and what a lost lease causes.

The flusher renews every lease of which a third is over, running or not, until the outcome of the
job is written. A handler may renew the lease of its own job at any time with `ClaimedJob.renew`.
"""

import threading
import time
from collections import Counter
from collections.abc import Set
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
from pulljobs.worker.in_flight import InFlightJobs
from pulljobs.worker.runs import CancelReason, HandlerRuns

CHECK_EVERY: Final = 0.05
"""Seconds between checks; a check of all in-flight jobs takes as long as a small flush."""
NEVER: Final = float("inf")


def renew_after(lease_duration: timedelta) -> float:
    """Return the seconds after which a lease of that duration is renewed: a third of it."""
    return lease_duration.total_seconds() / 3


class Renewer:
    """Renewal of the leases of all in-flight jobs; every tick of the flusher calls it."""

    def __init__(self, in_flight: InFlightJobs, runs: HandlerRuns) -> None:
        self._in_flight, self._runs = in_flight, runs
        self._checked_at = float("-inf")
        self._reports_nothing_running = threading.Event()

    def renew_due(self) -> None:
        """Renew the leases that are due, in one statement for each lease duration."""
        now = time.monotonic()
        if now < self._checked_at + CHECK_EVERY and not self._in_flight.is_renewal_requested:
            return
        self._checked_at = now
        due = sorted(self._in_flight.due_for_renewal(), key=attrgetter("lease_duration"))
        for lease_duration, group in groupby(due, key=attrgetter("lease_duration")):
            jobs = list(group)
            before = time.monotonic()
            helds = [job.held for job in jobs]
            renewed = pulling.renew(helds, lease_duration, running=self._running())
            self._note(jobs, renewed.keys(), before)

    def stop_charging(self) -> None:
        """Renew all leases once more with nothing running: a stop charges no job it cuts off."""
        self._reports_nothing_running.set()
        self._in_flight.request_renewal()

    @property
    def has_to_stop_charging(self) -> bool:
        """True while the renewal that `stop_charging` asked for is not written."""
        return self._reports_nothing_running.is_set() and any(self._in_flight.due_for_renewal())

    def _running(self) -> list[int]:
        """Return the ids of the jobs to charge if this process dies."""
        if self._reports_nothing_running.is_set():
            return []
        return [run.job.id for run in self._runs.current() if run.cancel_reason is None]

    def _note(self, jobs: list[ClaimedJob], renewed: Set[Held], before: float) -> None:
        """Extend the leases that were renewed, and cancel the runs of jobs that are lost."""
        lost: Counter[tuple[str, str]] = Counter()
        for job in jobs:
            if job.held in renewed:
                job.extend(before)
            elif job.renew_at <= before and not job.is_settled:
                job.taken_away, job.renew_at = True, NEVER
                self._runs.cancel(job.held, CancelReason.LOST)
                lost[job.handler.path] += 1
        for path, count in lost.items():
            emit(LeasesLost(count, *path))


def renew_now(job: ClaimedJob) -> bool:
    """Renew the lease of one job for `ClaimedJob.renew`; return False if it is lost."""
    if job.is_settled:
        return not job.lost
    before = time.monotonic()
    if connections[settings().DATABASE].in_atomic_block:
        # A renewal in the handler's transaction would lock the lease and count from its commit
        # only, so the flusher renews.
        job.renew_at = before
        return not job.lost
    if job.held in pulling.renew([job.held], job.lease_duration):
        job.extend(before)
        return True
    job.taken_away, job.renew_at = True, NEVER
    return False
