"""What becomes of a job once its handler is done, as data.

One function a legal way out of INFLIGHT; each fills only what that way may say. Executors decide,
the flusher writes.
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
    """What a holder shows to write: the fence."""

    job_id: int
    lease_token: UUID


class Settlement(NamedTuple):
    """One holder's word on one job. Build it with one of the functions below."""

    held: Held
    event: Event
    reason: str | None = None
    delay: timedelta | None = None
    error: str | None = None
    result: str | None = None
    """JSON."""
    started: bool | None = None
    """Of an expiry: whether the job had; None: nobody knows. True makes it a suspect, here too."""


NUL: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
"""Escaped as JSON has it, and not the second half of an escaped backslash and some text."""
_held: Final = tuple_maker(Held)
_settlement: Final = tuple_maker(Settlement)


def all_held(token: UUID, job_ids: Iterable[int]) -> Iterator[Held]:
    """What the holder of one claim shows for each of its jobs."""
    return map(_held, zip(job_ids, repeat(token)))


def deliver(held: Held, result: str | None = None) -> Settlement:
    return _settlement((held, DELIVER, None, None, None, result, None))


def reject(held: Held, error: str, *, reason: str | None = None) -> Settlement:
    return Settlement(held, Event.REJECT, error=error, reason=reason)


def retry(held: Held, error: str, *, after: timedelta | None = None) -> Settlement:
    """`after` None: the consumer's own delay."""
    return Settlement(held, Event.RETRY, error=error, delay=after)


def time_out(held: Held, error: str) -> Settlement:
    """Tried again like any other failure; DEAD as `timed_out` when its retries are used up."""
    return Settlement(held, Event.RETRY, reason=Reason.TIMED_OUT, error=error)


def suspect(held: Held, error: str) -> Settlement:
    """Tried again like any other failure, but alone in its process: it may have harmed others."""
    return Settlement(held, Event.RETRY, error=error, started=True)


def release(held: Held) -> Settlement:
    """Given back untouched: nothing is charged."""
    return Settlement(held, Event.RELEASE)


def plain_deliveries(settlements: Sequence[Settlement]) -> dict[UUID, list[int]] | None:
    """The jobs of each claim, by its token; None: there is more to be said of some."""
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
    """JSON as a result is stored; ValueError for more bytes than that.

    What PostgreSQL takes in no text, NUL and half surrogate pairs, is replaced.
    """
    stored = NUL.sub("\\1\N{REPLACEMENT CHARACTER}", text).encode("utf-8", "replace")
    if len(stored) > limit:
        raise ValueError(f"the result has {len(stored)} bytes of JSON, the limit is {limit}")
    return stored.decode()


def parameters(settlements: Sequence[Settlement]) -> dict[str, str | Integers]:
    """Of finish.sql."""
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
