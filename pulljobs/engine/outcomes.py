"""Outcomes of jobs, as data.

There is one function for each legal way out of INFLIGHT. It sets only the fields that this way may
have. Executors decide, and the flusher writes.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import repeat
from typing import Any, Final, NamedTuple
from uuid import UUID

from pulljobs.engine.encodings import Integers, array, integer_array, sparse_array, tuple_maker
from pulljobs.states import Event, Reason

DELIVER: Final = Event.DELIVER
"""Python 3.11 takes as long to find a member of an enum as to make the whole settlement."""


class Held(NamedTuple):
    """A job and the lease token that a holder must show to write its outcome."""

    job_id: int
    lease_token: UUID


class Settlement(NamedTuple):
    """Outcome that a holder reports for a job; the functions below build it."""

    held: Held
    event: Event
    reason: str | None = None
    delay: timedelta | None = None
    error: str | None = None
    result: str | None = None
    """JSON."""
    started: bool | None = None
    """True or False if the job is known to have started or not; True makes it a crash suspect."""


NUL: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
"""NUL as JSON escapes it, unless the backslash is itself escaped."""
_held: Final = tuple_maker(Held)
_settlement: Final = tuple_maker(Settlement)


def all_held(token: UUID, job_ids: Iterable[int]) -> Iterator[Held]:
    """Return each job of a claim with its lease token."""
    return map(_held, zip(job_ids, repeat(token)))


def deliver(held: Held, result: str | None = None) -> Settlement:
    return _settlement((held, DELIVER, None, None, None, result, None))


def reject(held: Held, error: str, *, reason: str | None = None) -> Settlement:
    return Settlement(held, Event.REJECT, error=error, reason=reason)


def retry(held: Held, error: str, *, after: timedelta | None = None) -> Settlement:
    """Retry a job after this delay, by default the consumer's own."""
    return Settlement(held, Event.RETRY, error=error, delay=after)


def time_out(held: Held, error: str) -> Settlement:
    """Retry a job that timed out; it is DEAD as `timed_out` when its retries are used up."""
    return Settlement(held, Event.RETRY, reason=Reason.TIMED_OUT, error=error)


def suspect(held: Held, error: str) -> Settlement:
    """Retry a job that may have harmed others; it runs in isolation."""
    return Settlement(held, Event.RETRY, error=error, started=True)


def release(held: Held, *, after: timedelta | None = None) -> Settlement:
    """Return a job to the queue without charging it, by default to be claimed at once."""
    return Settlement(held, Event.RELEASE, delay=after)


def plain_deliveries(settlements: Sequence[Settlement]) -> dict[UUID, list[int]] | None:
    """Return the jobs by lease token; None if one is not a delivery without a result."""
    by_claim: defaultdict[UUID, list[int]] = defaultdict(list)
    last: UUID | None = None
    job_ids: list[int] = []
    for (job_id, token), event, _reason, _delay, _error, result, _started in settlements:
        if event is not DELIVER or result is not None:
            return None
        if token is not last:  # They come in runs, and a UUID takes long to hash.
            last, job_ids = token, by_claim[token]
        job_ids.append(job_id)
    return by_claim


def result_text(text: str, limit: int) -> str:
    """Return JSON text as a result is stored; raise ValueError if it has more bytes than `limit`.

    NUL characters and half surrogate pairs, which PostgreSQL cannot store, are replaced.
    """
    stored = NUL.sub("\\1\N{REPLACEMENT CHARACTER}", text).encode("utf-8", "replace")
    if len(stored) > limit:
        raise ValueError(f"the result has {len(stored)} bytes of JSON, the limit is {limit}")
    return stored.decode()


def parameters(settlements: Sequence[Settlement]) -> dict[str, str | Integers]:
    """Return the parameters of finish.sql."""
    helds, events, reasons, delays, errors, results, started = _columns(settlements, 7)
    job_ids, tokens = _columns(helds, 2)
    return {
        "job_ids": integer_array(job_ids),
        "lease_tokens": array(tokens),
        "events": array(events),
        "reasons": sparse_array(reasons),
        "delays": sparse_array(delays),
        "errors": sparse_array(errors),
        "results": sparse_array(results),
        "started": sparse_array(started),
    }


def _columns(rows: Sequence[tuple[Any, ...]], count: int) -> list[tuple[Any, ...]]:
    return list(zip(*rows, strict=True)) if rows else [()] * count
