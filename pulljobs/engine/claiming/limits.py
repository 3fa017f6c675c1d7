"""Limits of a consumer: the jobs that it may have in flight, and the rate of its claims.

Claims of a limited consumer take turns: each locks the consumer's row before it reads what the
limits allow, so the limits are exact. Claims of other consumers take no such lock.

A rate is a token bucket. A claim takes one token a job, in the transaction that claims the jobs. In
a window of T seconds at most burst + rate * T jobs are claimed. A released job does not count,
because its token comes back.
"""

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from math import floor
from typing import Any, Final, NamedTuple

from pulljobs.engine.claiming.rows import Claimed, NotYet, Refusal
from pulljobs.engine.encodings import array
from pulljobs.engine.outcomes import Held
from pulljobs.engine.sql import Session

ROUNDING: Final = timedelta(microseconds=1)
"""Time that a wait for a token is longer, so that the token is whole at its end."""


class Bucket(NamedTuple):
    """Bucket of a consumer with a rate, as a transaction has locked it."""

    tokens: float
    per_second: float
    burst: float
    read_at: datetime
    is_outdated: bool
    """True if the row must be written, even if no token is spent."""
    learned_at: float
    """Time on the monotonic clock at which the answer came."""

    def time_to_token(self, spent: int) -> timedelta:
        """Return the time until there is a token after so many were spent."""
        seconds = (1 - (self.tokens - spent)) / self.per_second
        passed = time.monotonic() - self.learned_at
        return timedelta(seconds=max(seconds - passed, 0)) + ROUNDING


class Allowance(NamedTuple):
    """Jobs that a claim may take by the limits of its consumer, whose row is locked."""

    consumer_id: int
    room: int | None
    """Number of jobs that may come in flight, or None for any number."""
    bucket: Bucket | None
    """None without a rate."""

    @property
    def jobs(self) -> int:
        """Number of jobs that a claim may take."""
        tokens = None if self.bucket is None else floor(self.bucket.tokens)
        return max(0, min(limit for limit in (self.room, tokens) if limit is not None))

    @property
    def refusal(self) -> Refusal | NotYet:
        """Reason for which a claim may take nothing."""
        if self.bucket is None or self.room == 0:
            return Refusal.MAX_IN_FLIGHT
        return NotYet(Refusal.RATE_LIMITED, self.bucket.time_to_token(0))

    def spend(self, session: Session, jobs: int) -> None:
        """Take a token for each of these jobs, in the transaction that claims them."""
        bucket = self.bucket
        if bucket is None or not (jobs or bucket.is_outdated):
            return
        params = {
            "consumer_id": self.consumer_id,
            "jobs": jobs,
            "tokens": bucket.tokens,
            "per_second": bucket.per_second,
            "burst": bucket.burst,
            "read_at": bucket.read_at,
        }
        session.run("spend", params)

    def name_limit(self, claimed: Claimed, wanted: int) -> Claimed:
        """Name the limit in the result of a claim that might have taken more without it."""
        taken = len(claimed.jobs)
        if claimed.refusal is not None or taken == wanted or taken < self.jobs:
            return claimed
        if self.bucket is None or taken == self.room:
            # The transaction that makes room wakes the waiters, so no claim has to come before.
            return claimed._replace(refusal=Refusal.MAX_IN_FLIGHT, more=False, next_due=None)
        due = self.bucket.time_to_token(taken)
        return claimed._replace(refusal=Refusal.RATE_LIMITED, more=False, next_due=due)


def lock_allowance(session: Session, consumer_id: int) -> Allowance | None:
    """Lock the consumer until the transaction ends and return what its limits allow.

    None: it has no limits, or does not exist.
    """
    session.run("lock_consumer", {"consumer_id": consumer_id})
    for row in session.run("allowance", {"consumer_id": consumer_id}):
        bucket = None if row.tokens is None else _to_bucket(row)
        limited = row.room is not None or bucket is not None
        return Allowance(consumer_id, row.room, bucket) if limited else None
    return None


def _to_bucket(row: Any) -> Bucket:
    fields = row._asdict()
    del fields["room"]
    return Bucket(**fields, learned_at=time.monotonic())


def give_back(session: Session, released: Sequence[Held]) -> None:
    """Give back the tokens of released jobs, in the transaction that released them."""
    if released:
        params = {
            "job_ids": array(job.job_id for job in released),
            "lease_tokens": array(job.lease_token for job in released),
        }
        session.run("give_back", params)
