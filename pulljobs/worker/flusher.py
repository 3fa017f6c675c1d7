"""Flusher: writes buffered outcomes in batches, or a retry where the database refuses one."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Final

from pulljobs import pulling
from pulljobs.conf import Settings
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import DELIVER, Settlement
from pulljobs.engine.telemetry import HandlersRan, emit
from pulljobs.handlers import ClaimedJob
from pulljobs.outcome_texts import clean
from pulljobs.states import Event, State
from pulljobs.storage.rows import Finished
from pulljobs.worker.in_flight import InFlightJobs
from pulljobs.worker.result_buffer import BufferedResult, ResultBuffer

LOCKED_EVERY: Final = 1.0
"""Seconds between two attempts to write outcomes whose rows other transactions have locked."""
BACK_TO_QUEUE: Final = (Event.RETRY, Event.RELEASE)
"""Outcomes after which a job may be claimed again."""


class Flusher:
    """Loop that writes outcomes. An outcome whose write fails is written later.

    A job whose row another transaction keeps locked is set aside, so that no other outcome waits
    for it. Its lease is renewed until its outcome is written. Until then no batch waits for a lock:
    where a row is locked, others often are, and a second wait could outlast a lease.
    """

    def __init__(
        self,
        buffer: ResultBuffer,
        limits: Settings,
        in_flight: InFlightJobs,
        on_flushed: Callable[[Collection[ClaimedJob], Collection[ClaimedJob]], None],
        on_given_up: Callable[[ClaimedJob], None],
    ) -> None:
        """`on_flushed` gets the jobs of a written batch, and those of them to retry or release.

        `on_given_up` gets each job that its retry made DEAD.
        """
        self._buffer, self._results = buffer, buffer.results
        self._limits, self._in_flight = limits, in_flight
        self._on_flushed, self._on_given_up = on_flushed, on_given_up
        self._locked: list[BufferedResult] = []
        self._locked_at = 0.0

    def tick(self) -> float:
        """Write throttles and a batch, and emit run times. Return the seconds to sleep."""
        self._buffer.throttles.write(self._limits.DATABASE)
        flushed = self._flush()
        if self._locked and time.monotonic() >= self._locked_at + LOCKED_EVERY:
            self._flush_locked()
        self._emit_run_times()
        if flushed == self._limits.FLUSH_SIZE:
            return 0
        return self._limits.FLUSH_INTERVAL.total_seconds()

    def retry_locked(self) -> None:
        """Have the next pass write the outcomes whose rows were locked, even if they are not due.

        Any thread may call this. The caller wakes the flusher.
        """
        self._locked_at = float("-inf")

    def _flush(self) -> int:
        """Write a batch of outcomes and return their number.

        If that fails, put them back into the buffer and raise the error.
        """
        batch = self._take_batch()
        if not batch:
            return 0
        self._in_flight.writing = batch
        try:
            finished = self._finish(batch, skip_locked=bool(self._locked))
        except Exception:
            self._results.extendleft(reversed(batch))
            raise
        self._note_written(batch, finished)
        return len(batch)

    def _flush_locked(self) -> None:
        """Write the outcomes that were set aside, if their rows are free now."""
        batch, self._locked = self._locked, []
        self._locked_at = time.monotonic()
        self._in_flight.writing = batch
        try:
            finished = self._finish(batch, skip_locked=True)
        except Exception:
            self._locked = batch
            raise
        self._note_written(batch, finished)

    def _note_written(self, batch: list[BufferedResult], finished: Finished) -> None:
        """Drop the jobs of a written batch from the in-flight jobs, except locked and refused ones.

        A locked outcome is written later, and a retry in place of a refused one.
        """
        if finished.locked:
            locked = [(job, outcome) for job, outcome in batch if job.id in finished.locked]
            batch = [(job, outcome) for job, outcome in batch if job.id not in finished.locked]
            # Further outcomes do not postpone the next attempt: the first rows may be free by now.
            self._locked_at = self._locked_at if self._locked else time.monotonic()
            self._locked += locked
        jobs = [job for job, _outcome in batch]
        refused = self._buffer_refused(batch, finished)
        self._in_flight.drop([job for job in jobs if job not in refused] if refused else jobs)
        back = _sent_back(batch)
        self._on_flushed(jobs, back)
        self._give_up(back, finished)

    def _take_batch(self) -> list[BufferedResult]:
        """Take the oldest results, at most one for each job id.

        A job whose lease was lost may have been claimed again here, and then has two results.
        """
        most = min(self._limits.FLUSH_SIZE, len(self._results))
        batch = [self._results.popleft() for _ in range(most)]
        if len({job.held.job_id for job, _outcome in batch}) == most:
            return batch
        once: dict[int, BufferedResult] = {}
        for result in batch:
            job, _outcome = result
            if once.setdefault(job.id, result) is not result:
                break
        self._results.extendleft(reversed(batch[len(once) :]))
        return list(once.values())

    def _finish(self, batch: list[BufferedResult], *, skip_locked: bool) -> Finished:
        written = [outcome for _job, outcome in batch if outcome is not None]
        return pulling.finish(
            written,
            lambda: {job.id: job.handler.names for job, _outcome in batch},
            skip_locked=skip_locked,
        )

    def _buffer_refused(
        self, batch: Iterable[BufferedResult], finished: Finished
    ) -> set[ClaimedJob]:
        """Buffer a retry for each outcome whose result or delay was refused. Return these jobs."""
        if not finished.refused:
            return set()
        refused = {job for job, outcome in batch if _is_refused(job, outcome, finished)}
        self._results.extend(
            (job, _substitute(job, finished.refused[job.held.job_id]))
            for job, _outcome in batch
            if job in refused
        )
        return refused

    def _give_up(self, back: Iterable[ClaimedJob], finished: Finished) -> None:
        for job in back:
            if finished.states.get(job.id, job.went_to) is State.DEAD:
                self._on_given_up(job)

    def _emit_run_times(self) -> None:
        """Emit the times of the runs that have ended since the last pass."""
        by_consumer: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for names, seconds in self._buffer.runs.take_times():
            by_consumer[names].append(seconds)
        for names, times in by_consumer.items():
            emit(HandlersRan(*names, times))


def _sent_back(batch: Iterable[BufferedResult]) -> list[ClaimedJob]:
    """Return the jobs of a batch that were retried or released: most go back to the queue."""
    return [
        job
        for job, outcome in batch
        # Nearly all outcomes are deliveries, and comparing an enum is slow.
        if (outcome is None or outcome.event is not DELIVER) and _is_sent_back(job, outcome)
    ]


def _is_sent_back(job: ClaimedJob, outcome: Settlement | None) -> bool:
    """Return True if the outcome or, if it is None, the handler retried or released the job."""
    return job.went_to is not None if outcome is None else outcome.event in BACK_TO_QUEUE


def _is_refused(job: ClaimedJob, outcome: Settlement | None, finished: Finished) -> bool:
    """Return True if the database refused an outcome because of its result or its delay."""
    return (
        outcome is not None
        and job.held.job_id in finished.refused
        and (outcome.result is not None or outcome.delay is not None)
    )


def _substitute(job: ClaimedJob, error: str) -> Settlement:
    return outcomes.retry(job.held, clean(f"Its outcome can't be written: {error}"))
