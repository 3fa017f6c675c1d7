"""Outcomes of jobs, as data.

There is one function for each legal way out of INFLIGHT. It sets only the fields that this way may
have. Executors decide, and the flusher writes.
"""

import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import repeat
from operator import itemgetter
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
    run: "ReportedRun | None" = None
    """Begin and end of the run that had this outcome, if the holder knows them."""
    max_retries: int | None = None
    """Number of retries in place of the consumer's, of a retry."""


class ReportedRun(Protocol):
    """Run of a handler, with times of this process's monotonic clock."""

    @property
    def begun_at(self) -> float | None:
        """Begin of the run, or None if it is not known."""

    @property
    def ended_at(self) -> float | None:
        """End of the run, or None while it goes on."""


Deliveries = tuple[list[int], list[ReportedRun | None]]
"""Ids of delivered jobs, and their runs in the same order."""
NUL: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
"""NUL as JSON escapes it, unless the backslash is itself escaped."""
_held: Final = tuple_maker(Held)
_settlement: Final = tuple_maker(Settlement)


def all_held(token: UUID, job_ids: Iterable[int]) -> Iterator[Held]:
    """Return each job of a claim with its lease token."""
    return map(_held, zip(job_ids, repeat(token)))


def deliver(held: Held, result: str | None = None, run: ReportedRun | None = None) -> Settlement:
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


def release(held: Held, *, after: timedelta | None = None) -> Settlement:
    """Return a job to the queue without charging it, by default to be claimed at once."""
    return Settlement(held, Event.RELEASE, delay=after)


def plain_deliveries(settlements: Sequence[Settlement]) -> dict[UUID, Deliveries] | None:
    """Return the jobs by lease token, or None if a job has a result or is not delivered."""
    by_claim: defaultdict[UUID, Deliveries] = defaultdict(lambda: ([], []))
    last: UUID | None = None
    job_ids: list[int] = []
    runs: list[ReportedRun | None] = []
    for (job_id, token), event, _reason, _delay, _error, result, _started, run, _ in settlements:
        if event is not DELIVER or result is not None:
            return None
        if token is not last:  # They come in runs, and a UUID takes long to hash.
            last, (job_ids, runs) = token, by_claim[token]
        job_ids.append(job_id)
        runs.append(run)
    return by_claim


def result_text(text: str, limit: int) -> str:
    """Return JSON text as a result is stored. Raise ValueError if it has more bytes than `limit`.

    NUL characters and half surrogate pairs, which PostgreSQL cannot store, are replaced.
    """
    stored = NUL.sub("\\1\N{REPLACEMENT CHARACTER}", text).encode("utf-8", "replace")
    if len(stored) > limit:
        raise ValueError(f"the result has {len(stored)} bytes of JSON, the limit is {limit}")
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


def _run_times(runs: Sequence[ReportedRun | None]) -> dict[str, float | Floats]:
    """Return begins and ends of runs, with the time of the clock that they are of."""
    begins = float_array([None if run is None else run.begun_at for run in runs])
    ends = float_array([None if run is None else run.ended_at for run in runs])
    return {"run_clock": time.monotonic(), "run_begins": begins, "run_ends": ends}


def _columns(rows: Sequence[tuple[Any, ...]], count: int) -> list[tuple[Any, ...]]:
    return list(zip(*rows, strict=True)) if rows else [()] * count
