"""What becomes of a job once its handler is done, as data.

One function a legal way out of INFLIGHT; each fills only what that way may say. Executors decide,
the flusher writes.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple
from uuid import UUID

from pulljobs.arrays import array
from pulljobs.states import Event, Reason

DELIVER: Final = Event.DELIVER
"""Python 3.11 takes as long to find a member of an enum as to make the whole settlement."""


class Held(NamedTuple):
    """What a holder shows to write: the fence."""

    job_id: int
    token: UUID


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
    """Of an expiry: whether the job had; None: nobody knows."""


def deliver(held: Held, result: str | None = None) -> Settlement:
    return Settlement(held, DELIVER, None, None, None, result)


def reject(held: Held, error: str, *, reason: str | None = None) -> Settlement:
    return Settlement(held, Event.REJECT, error=error, reason=reason)


def retry(held: Held, error: str, *, after: timedelta | None = None) -> Settlement:
    """`after` None: the consumer's own delay."""
    return Settlement(held, Event.RETRY, error=error, delay=after)


def time_out(held: Held, error: str) -> Settlement:
    """Tried again like any other failure; DEAD as `timed_out` when its retries are used up."""
    return Settlement(held, Event.RETRY, reason=Reason.TIMED_OUT, error=error)


def release(held: Held) -> Settlement:
    """Given back untouched: nothing is charged."""
    return Settlement(held, Event.RELEASE)


def parameters(settlements: Sequence[Settlement]) -> dict[str, str]:
    """Of finish.sql."""
    return {
        "job_ids": array(one.held.job_id for one in settlements),
        "tokens": array(one.held.token for one in settlements),
        "events": array(one.event for one in settlements),
        "reasons": array(one.reason for one in settlements),
        "delays": array(one.delay for one in settlements),
        "errors": array(one.error for one in settlements),
        "results": array(one.result for one in settlements),
        "started": array(one.started for one in settlements),
    }
