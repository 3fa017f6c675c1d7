"""Outcomes of jobs, as data that `pulling.finish` writes.

Each kind of outcome has a function, which sets only the fields that its event may have.
"""

import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import compress, count, pairwise, repeat
from operator import is_not, itemgetter
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from pulljobs.engine.encodings import (
    Floats,
    array,
    float_array,
    integer_array,
    sparse_array,
    tuple_maker,
)
from pulljobs.states import Event, Reason

UNSETTLED: Final = "Lease expired: the worker crashed or stopped renewing."
"""Error of a job that expires."""
WORKER: Final = "worker"
"""Value of `pulljobs.models.Lease.Via` for the leases of workers."""
DELIVER: Final = Event.DELIVER
"""`Event.DELIVER`. Python 3.11 takes as long to find it as to make a whole settlement."""


class Held(NamedTuple):
    """Id of a job, and the lease_token that its holder must present to write its outcome."""

    job_id: int
    lease_token: UUID


class ReportedRun(Protocol):
    """Start and duration of one run of a handler, by the monotonic clock of this process."""

    @property
    def begun_at(self) -> float | None:
        """Time at which the handler began, or None if it is not known."""

    @property
    def run_seconds(self) -> float | None:
        """Seconds that the handler ran, or None while it runs or if they are not known."""


class UnreportedRun(NamedTuple):
    """Execution of a handler by a holder that reports no times, such as an HTTP client."""

    begun_at: float | None = None
    run_seconds: float | None = None


UNREPORTED: Final = UnreportedRun()


class Settlement(NamedTuple):
    """Outcome that a holder reports for a job. The functions below build it."""

    held: Held
    event: Event
    reason: str | None = None
    delay: timedelta | None = None
    error: str | None = None
    result: str | None = None
    """Result of the handler as JSON text."""
    started: bool | None = None
    """True if the job has started, False if it has not, None if unknown or without effect.

    After a retry or an expiry, True makes it a crash suspect.
    """
    run: ReportedRun = UNREPORTED
    """Start and duration of the handler's run."""
    max_retries: int | None = None
    """Largest number of retries, for a retry in place of the consumer's."""


Deliveries = tuple[list[int], list[ReportedRun]]
"""Ids of delivered jobs, and the runs of their handlers in the same order."""
NUL: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
"""NUL as JSON escapes it, unless the backslash is itself escaped."""
_held: Final = tuple_maker(Held)
_settlement: Final = tuple_maker(Settlement)


def all_held(token: UUID, job_ids: Iterable[int]) -> Iterator[Held]:
    """Return a `Held` for each job of a claim."""
    return map(_held, zip(job_ids, repeat(token)))


def held_columns(held: Collection[Held]) -> dict[str, str]:
    """Return held jobs as two parameters of a statement: arrays of ids and of lease tokens."""
    return {
        "job_ids": array(job.job_id for job in held),
        "lease_tokens": array(job.lease_token for job in held),
    }


def deliver(held: Held, result: str | None = None, run: ReportedRun = UNREPORTED) -> Settlement:
    """Return the outcome of a job that is done. `result` is JSON text."""
    return _settlement((held, DELIVER, None, None, None, result, None, run, None))


def reject(held: Held, error: str, *, reason: str | None = None) -> Settlement:
    """Return the outcome that makes a job DEAD. `reason` is by default `Reason.REJECTED`."""
    return Settlement(held, Event.REJECT, error=error, reason=reason)


def retry(held: Held, error: str, *, after: timedelta | None = None) -> Settlement:
    """Return the outcome of a failed run: a retry after this delay, by default the consumer's.

    Without retries left, the job is DEAD.
    """
    return Settlement(held, Event.RETRY, error=error, delay=after)


def time_out(held: Held, error: str) -> Settlement:
    """Return the outcome that a worker reports for a job that ran over its time limit: a retry.

    When its retries are used up, the job is DEAD with the reason TIMED_OUT.
    """
    return Settlement(held, Event.RETRY, reason=Reason.TIMED_OUT, error=error)


def suspect(held: Held, error: str) -> Settlement:
    """Return the outcome that retries a job in isolation, because it may have harmed others."""
    return Settlement(held, Event.RETRY, error=error, started=True)


def expire(held: Held, running_ids: Collection[int] | None, via: str) -> Settlement:
    """Return the outcome of a job whose lease has ended.

    `running_ids` are the jobs that a worker or a push delivery last reported as running. A job that
    is not among them is not charged, and becomes a crash suspect if that happens again. A worker's
    job that is among them becomes one at once. For other holders they are None, and the job is
    charged. `via` is the lease's `Lease.Via`.
    """
    started = None if running_ids is None else held.job_id in running_ids
    if started and via != WORKER:
        started = None  # The job ran no code that could have ended a worker's process.
    return Settlement(held, Event.EXPIRE, error=UNSETTLED, started=started)


def release(
    held: Held,
    *,
    after: timedelta | None = None,
    started: bool | None = None,
    error: str | None = None,
) -> Settlement:
    """Return the outcome that queues a job again uncharged, by default without a delay.

    The tokens of rate limits that the job took are given back, unless it may have run: `started` is
    True, or its run has begun. The attempt gets the text `error`, the job keeps the error of its
    last failure.
    """
    return Settlement(held, Event.RELEASE, delay=after, started=started, error=error)


def suspend(held: Held, after: timedelta) -> Settlement:
    """Return the outcome that queues the run of a workflow again, due after the time `after`.

    Its count of retries is reset to 0, and that of deliveries to 1.
    """
    return Settlement(held, Event.SUSPEND, delay=after)


def plain_deliveries(settlements: Sequence[Settlement]) -> dict[UUID, Deliveries] | None:
    """Return the jobs and their runs by lease_token, if all outcomes fit deliver.sql, else None.

    The statement deliver.sql takes deliveries without a result. Other outcomes need finish.sql.
    """
    # Columns, because a loop over all jobs takes twice as long.
    helds, events, _reasons, _delays, _errors, results, _started, runs, _ = _columns(settlements, 9)
    if events.count(DELIVER) < len(events) or results.count(None) < len(results):
        return None
    job_ids, tokens = _columns(helds, 2)
    by_claim: defaultdict[UUID, Deliveries] = defaultdict(lambda: ([], []))
    # Jobs of a claim come one after the other, mostly, and a UUID takes long to hash or compare.
    changes = compress(count(1), map(is_not, tokens[1:], tokens))
    for start, end in pairwise([0, *changes, len(tokens)]):
        ids_of_claim, runs_of_claim = by_claim[tokens[start]]
        ids_of_claim += job_ids[start:end]
        runs_of_claim += runs[start:end]
    return by_claim


def result_text(text: str, limit: int, what: str = "result") -> str:
    """Return JSON text in the form in which PostgreSQL can store it as a result.

    NUL characters and half surrogate pairs are replaced. Raise ValueError if it has more bytes than
    `limit`. `what` is its name in the error.
    """
    stored = NUL.sub("\\1\N{REPLACEMENT CHARACTER}", text).encode("utf-8", "replace")
    if len(stored) > limit:
        raise ValueError(
            f"The {what} has {len(stored)} bytes of JSON, the limit is {limit}: store the data "
            "elsewhere and use its id, or raise MAX_RESULT_BYTES."
        )
    return stored.decode()


def deliver_parameters(token: UUID, deliveries: Deliveries) -> dict[str, Any]:
    """Return the parameters of deliver.sql for the jobs of one claim, ordered by their ids."""
    job_ids, runs = deliveries
    ordered = sorted(job_ids)
    if job_ids != ordered:
        by_id = dict(zip(job_ids, runs, strict=True))
        runs = [by_id[job_id] for job_id in ordered]
    return {"lease_token": token, "job_ids": integer_array(ordered), **_run_times(runs)}


def parameters(settlements: Iterable[Settlement]) -> dict[str, Any]:
    """Return the parameters of finish.sql, as arrays ordered by the ids of the jobs."""
    ordered = sorted(settlements, key=itemgetter(0))
    columns = _columns(ordered, 9)
    helds, events, reasons, delays, errors, results, started, runs, max_retries = columns
    job_ids, tokens = _columns(helds, 2)
    return {
        **_run_times(runs),
        "job_ids": integer_array(job_ids),
        "lease_tokens": array(tokens),
        "events": array(events),
        "reasons": sparse_array(reasons),
        "delays": sparse_array(delays),
        "errors": sparse_array(errors),
        "results": sparse_array(results),
        "started": sparse_array(started),
        "max_retries": sparse_array(max_retries),
    }


def _run_times(runs: Sequence[ReportedRun]) -> dict[str, float | Floats]:
    """Return the parameters of a statement that hold the start times and durations of runs.

    Start times are of the monotonic clock, so the server also needs that clock's present time.
    """
    return {
        "run_clock": time.monotonic(),
        "run_begins": float_array([run.begun_at for run in runs]),
        "run_seconds": float_array([run.run_seconds for run in runs]),
    }


def _columns(rows: Sequence[tuple[Any, ...]], count: int) -> list[tuple[Any, ...]]:
    return list(zip(*rows, strict=True)) if rows else [()] * count
