"""The flusher: writes outcomes in batches, and renews the leases of all that is not written yet."""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Set
from itertools import groupby
from operator import attrgetter
from typing import Final

from pulljobs import pulling
from pulljobs.conf import Settings
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import DELIVER, Held, Settlement
from pulljobs.engine.telemetry import HandlersRan, LeasesLost, emit
from pulljobs.handlers import ClaimedJob
from pulljobs.outcome_texts import clean
from pulljobs.states import Event, State
from pulljobs.storage.rows import Finished
from pulljobs.worker.in_flight import Holdings
from pulljobs.worker.result_buffer import Outbox, Said
from pulljobs.worker.runs import Ended

BACK: Final = (Event.RETRY, Event.RELEASE)
LOOK_AGAIN: Final = 0.05
"""Seconds; to look through all that is held takes as long as the Python of a small flush."""


class Flusher:
    """Loop: renew what is due, then write what was said; an outcome is never lost, only late."""

    def __init__(
        self,
        outbox: Outbox,
        limits: Settings,
        holdings: Holdings,
        on_flushed: Callable[[Collection[ClaimedJob], Collection[ClaimedJob]], None],
        on_given_up: Callable[[ClaimedJob], None],
    ) -> None:
        """`on_flushed` is told whose words are written, and which of them go back to the queue."""
        self._outbox, self._said = outbox, outbox.said
        self._on_given_up = on_given_up
        self._is_leaving = threading.Event()
        self._limits, self._holdings, self._on_flushed = limits, holdings, on_flushed
        self._looked_at = float("-inf")

    def leave(self) -> None:
        """From now on leases say that nothing runs: what a stop cuts off is not charged."""
        self._is_leaving.set()
        self._holdings.doubt()

    @property
    def is_leaving(self) -> bool:
        """Whether that is still to be written."""
        return self._is_leaving.is_set() and any(self._holdings.due())

    def tick(self) -> float:
        self._renew()
        flushed = self._flush()
        self._tell_times()
        if flushed == self._limits.FLUSH_SIZE:
            return 0
        return self._limits.FLUSH_INTERVAL.total_seconds()

    def _flush(self) -> int:
        batch = self._batch()
        if not batch:
            return 0
        jobs, words = zip(*batch, strict=True)
        written = [word for word in words if word is not None]
        try:
            finished = pulling.finish(written, lambda: {one.id: one.handler.path for one in jobs})
        except Exception:
            self._said.extendleft(reversed(batch))
            raise
        again = [said for said in batch if _is_refused(said, finished)] if finished.refused else []
        self._said.extend(
            (job, _substitute(job, finished.refused[job.held.job_id])) for job, _word in again
        )
        kept = {job for job, _word in again}
        self._holdings.drop([job for job in jobs if job not in kept] if kept else jobs)
        back = [
            job
            for job, word in batch
            # Nearly all are delivered, and an enum takes long to compare.
            if (job.went_to if word is None else word.event is not DELIVER and word.event in BACK)
        ]
        self._on_flushed(jobs, back)
        for job in back:
            if finished.states.get(job.id, job.went_to) is State.DEAD:
                self._on_given_up(job)  # It was to be tried again.
        return len(batch)

    def _batch(self) -> list[Said]:
        """A job once: one that was lost and claimed again may have been done here both times."""
        most = min(self._limits.FLUSH_SIZE, len(self._said))
        batch = [self._said.popleft() for _ in range(most)]
        if len({job.held.job_id for job, _word in batch}) == most:
            return batch
        once: dict[int, Said] = {}
        for said in batch:
            if once.setdefault(said[0].held.job_id, said) is not said:
                break
        self._said.extendleft(reversed(batch[len(once) :]))
        return list(once.values())

    def _renew(self) -> None:
        now = time.monotonic()
        if now < self._looked_at + LOOK_AGAIN and not self._holdings.in_doubt:
            return
        self._looked_at = now
        due = sorted(self._holdings.due(), key=attrgetter("lease_duration"))
        for lease, group in groupby(due, key=attrgetter("lease_duration")):
            jobs = list(group)
            before = time.monotonic()
            kept = pulling.renew([job.held for job in jobs], lease, running=self._running())
            self._mark(jobs, kept.keys(), before)

    def _tell_times(self) -> None:
        """Of the runs that have ended since."""
        by_place: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for place, seconds in self._outbox.runs.ended_since():
            by_place[place].append(seconds)
        for place, times in by_place.items():
            emit(HandlersRan(*place, times))

    def _running(self) -> list[int]:
        if self._is_leaving.is_set():
            return []
        return [run.job.id for run in self._outbox.runs.now() if run.ended is None]

    def _mark(self, jobs: list[ClaimedJob], kept: Set[Held], before: float) -> None:
        lost: Counter[tuple[str, str]] = Counter()
        for job in jobs:
            if job.held in kept:
                job.extend(before)
            elif job.renew_at <= before and not job.is_settled:
                job.taken_away, job.renew_at = True, float("inf")
                self._outbox.runs.cancel(job.held, Ended.LOST)
                lost[job.handler.path] += 1
        for place, count in lost.items():
            emit(LeasesLost(count, *place))


def _is_refused(said: Said, finished: Finished) -> bool:
    """Whether it was not written for what it says; in a substitute nothing can be refused."""
    job, word = said
    return (
        word is not None
        and job.held.job_id in finished.refused
        and (word.result is not None or word.delay is not None)
    )


def _substitute(job: ClaimedJob, error: str) -> Settlement:
    return outcomes.retry(job.held, clean(f"Its outcome can't be written: {error}"))
