"""Outcomes of jobs, as data.

There is one function for each legal way out of INFLIGHT. It sets only the fields that this way may
have. Executors decide, and the flusher writes.
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
"""Leases of workers, by `pulljobs.models.Lease.Via`."""
DELIVER: Final = Event.DELIVER
"""Python 3.11 takes as long to find a member of an enum as to make the whole settlement."""


class Held(NamedTuple):
    """A job and the lease token that a holder must show to write its outcome."""

    job_id: int
    lease_token: UUID


class ReportedRun(Protocol):
    """Run of a handler, by the monotonic clock of this process."""

    @property
    def begun_at(self) -> float | None:
        """Begin of the run, or None if it is not known."""

    @property
    def run_seconds(self) -> float | None:
        """Seconds from the begin of the run to its end, or None while it goes on."""


class UnreportedRun(NamedTuple):
    """Run of a job whose holder reports no times, as HTTP clients do."""

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
    """JSON."""
    started: bool | None = None
    """True or False if the job is known to have started or not. True makes it a crash suspect."""
    run: ReportedRun = UNREPORTED
    """Run that had this outcome."""
    max_retries: int | None = None
    """Number of retries in place of the consumer's, of a retry."""


Deliveries = tuple[list[int], list[ReportedRun]]
"""Ids of delivered jobs, and their runs in the same order."""
NUL: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
"""NUL as JSON escapes it, unless the backslash is itself escaped."""
_held: Final = tuple_maker(Held)
_settlement: Final = tuple_maker(Settlement)


def all_held(token: UUID, job_ids: Iterable[int]) -> Iterator[Held]:
    """Return each job of a claim with its lease token."""
    return map(_held, zip(job_ids, repeat(token)))


def deliver(held: Held, result: str | None = None, run: ReportedRun = UNREPORTED) -> Settlement:
    return _settlement((held, DELIVER, None, None, None, result, None, run, None))


def reject(held: Held, error: str, *, reason: str | None = None) -> Settlement:
    return Settlement(held, Event.REJECT, error=error, reason=reason)


def retry(held: Held, error: str, *, after: timedelta | None = None) -> Settlement:
    """Retry a job after this delay, by default the consumer's own."""
    return Settlement(held, Event.RETRY, error=error, delay=after)


def time_out(held: Held, error: str) -> Settlement:
    """Retry a job that timed out. It is DEAD as `timed_out` when its retries are used up."""
    return Settlement(held, Event.RETRY, reason=Reason.TIMED_OUT, error=error)


def suspect(held: Held, error: str) -> Settlement:
    """Retry a job that may have harmed others. It runs in isolation."""
    return Settlement(held, Event.RETRY, error=error, started=True)


def expire(held: Held, running_ids: Collection[int] | None, via: str) -> Settlement:
    """Expire a job: uncharged if a worker had not started it, and a suspect if it had.

    `running_ids` has the jobs that the node of the lease reported as running, or is None without a
    report.
    """
    started = None if running_ids is None else held.job_id in running_ids
    if started and via != WORKER:
        started = None  # It ran no code that could have ended its process.
    return Settlement(held, Event.EXPIRE, error=UNSETTLED, started=started)


def release(
    held: Held, *, after: timedelta | None = None, started: bool | None = None
) -> Settlement:
    """Return a job to the queue without charging it, by default to be claimed at once.

    With `started` the job may have run, so the rate of its consumer counts it.
    """
    return Settlement(held, Event.RELEASE, delay=after, started=started)


def suspend(held: Held, after: timedelta) -> Settlement:
    """Return a run of a workflow to the queue, due after that time, with its counts reset."""
    return Settlement(held, Event.SUSPEND, delay=after)


def plain_deliveries(settlements: Sequence[Settlement]) -> dict[UUID, Deliveries] | None:
    """Return the jobs by lease token, or None if a job has a result or is not delivered."""
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
    """Return JSON text as a result is stored. Raise ValueError if it has more bytes than `limit`.

    `what` is its name in the error. NUL characters and half surrogate pairs, which PostgreSQL
    cannot store, are replaced.
    """
    stored = NUL.sub("\\1\N{REPLACEMENT CHARACTER}", text).encode("utf-8", "replace")
    if len(stored) > limit:
        raise ValueError(
            f"The {what} has {len(stored)} bytes of JSON, the limit is {limit}: store the data "
            "elsewhere and use its id, or raise MAX_RESULT_BYTES."
        )
    return stored.decode()


def deliver_parameters(token: UUID, deliveries: Deliveries) -> dict[str, Any]:
    """Return the parameters of deliver.sql."""
    job_ids, runs = deliveries
    ordered = sorted(job_ids)
    if job_ids != ordered:
        by_id = dict(zip(job_ids, runs, strict=True))
        runs = [by_id[job_id] for job_id in ordered]
    return {"lease_token": token, "job_ids": integer_array(ordered), **_run_times(runs)}


def parameters(settlements: Iterable[Settlement]) -> dict[str, Any]:
    """Return the parameters of finish.sql."""
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
    """Return begins and durations of runs, with the time now of the clock of the begins."""
    return {
        "run_clock": time.monotonic(),
        "run_begins": float_array([run.begun_at for run in runs]),
        "run_seconds": float_array([run.run_seconds for run in runs]),
    }


def _columns(rows: Sequence[tuple[Any, ...]], count: int) -> list[tuple[Any, ...]]:
    return list(zip(*rows, strict=True)) if rows else [()] * count
