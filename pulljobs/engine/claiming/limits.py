"""Limits of consumers and limit groups: jobs in flight, and the rate of claims.

Claims of a limited consumer take turns: each locks the row of the consumer's group, if there is
one, and the consumer's row before it reads what the limits allow, so the limits are exact. Claims
of other consumers take no such lock.

A rate is a token bucket, or a fixed window. A claim takes the cost of each job, in the transaction
that claims the jobs. In any T seconds a bucket gives at most burst + rate * T tokens. A released
job does not count, because its tokens come back.
"""

import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from math import floor
from typing import Any, Final, NamedTuple

from pulljobs.engine.claiming.rows import Claimed, NotYet, Refusal
from pulljobs.engine.encodings import integer_array
from pulljobs.engine.outcomes import Held, held_columns
from pulljobs.engine.sql import Session

ROUNDING: Final = timedelta(microseconds=1)
"""Time that is added to a wait for a token, so that the token is whole at the end of the wait."""
ANY_NUMBER: Final = 1 << 31


class NotEnoughTokens(Exception):
    """Error of a claim whose jobs cost more than there are tokens, so that it is rolled back.

    `fit` is the number of the first jobs for which the tokens suffice, `next_cost` the cost of the
    job after them, and `wait` the time until there are tokens for that job.
    """

    def __init__(self, fit: int, next_cost: float, wait: timedelta) -> None:
        super().__init__(f"Only {fit} of the jobs fit, and the next one costs {next_cost:g}.")
        self.fit, self.next_cost, self.wait = fit, next_cost, wait


class Bucket(NamedTuple):
    """Tokens of the rate of a consumer or group, read by a transaction that has its row locked."""

    consumer_id: int
    group_id: int
    tokens: float
    per_second: float
    burst: float
    window_seconds: float | None
    """Length of the fixed windows of the rate, or None for a token bucket."""
    seconds_to_window: float | None
    """Seconds until the next window, or None for a token bucket."""
    read_at: datetime
    is_outdated: bool
    """True if the row must be written, even if no token is spent."""
    learned_at: float
    """Time on the monotonic clock at which the answer came."""
    spent: float = 0.0
    """Tokens that the claim of this transaction took."""

    def time_to(self, cost: float) -> timedelta:
        """Return the time until there are tokens for a job of this cost, 0 if there are now.

        A job that costs more than the bucket holds only needs a full bucket.
        """
        missing = min(cost, self.burst) - self.tokens
        if missing <= 0:
            return timedelta()
        to_window, passed = self.seconds_to_window, time.monotonic() - self.learned_at
        seconds = missing / self.per_second if to_window is None else to_window
        return timedelta(seconds=max(seconds - passed, 0)) + ROUNDING

    def spend(self, session: Session, job_ids: Sequence[int]) -> "Bucket":
        """Take the costs of these jobs out of the bucket's row. Return the bucket as it is then.

        Raise NotEnoughTokens, and write nothing, if the jobs cost more than there are tokens.
        """
        if not (job_ids or self.is_outdated):
            return self
        params = {**self._asdict(), "job_ids": integer_array(job_ids)}
        [row] = session.run("spend", params)
        if row.next_cost is not None:
            raise NotEnoughTokens(row.fit, row.next_cost, self.time_to(row.next_cost))
        left = self._replace(tokens=self.tokens - row.spent, is_outdated=False)
        return left._replace(spent=row.spent)


class Allowance(NamedTuple):
    """Jobs that a claim may take by the limits of its consumer and group, whose rows are locked."""

    room: int | None
    """Number of further jobs that may be in flight, or None for any number."""
    buckets: tuple[Bucket, ...] = ()
    """Tokens of the group and of the consumer, of each that has a rate."""
    taken: int = 0
    """Jobs that the claim has taken already."""

    @property
    def is_unlimited(self) -> bool:
        """True if neither the consumer nor its group has a limit."""
        return self.room is None and not self.buckets

    @property
    def tokens(self) -> float:
        """Tokens that a claim may take, at least 0, or ANY_NUMBER without a rate limit."""
        return max(0.0, min((bucket.tokens for bucket in self.buckets), default=float(ANY_NUMBER)))

    def most(self, job_cost: float) -> int:
        """Return how many jobs of this average cost a claim may try to take.

        It is at least 1 if there are a token and room, because the next job may be cheaper.
        """
        tokens = self.tokens
        by_tokens = max(floor(tokens / job_cost), int(tokens >= 1))
        return by_tokens if self.room is None else min(by_tokens, self.room)

    def time_to(self, cost: float) -> timedelta:
        """Return the time until every bucket has tokens for a job of this cost."""
        return max((bucket.time_to(cost) for bucket in self.buckets), default=timedelta())

    @property
    def spent(self) -> float:
        """Tokens that `spend` took for its jobs, or without a rate limit the number of jobs."""
        return max((bucket.spent for bucket in self.buckets), default=float(self.taken))

    @property
    def refusal(self) -> Refusal | NotYet:
        """Reason why a claim may take no job, with the time until a token if it lacks one."""
        if not self.buckets or self.room == 0:
            return Refusal.MAX_IN_FLIGHT
        return NotYet(Refusal.RATE_LIMITED, self.time_to(1))

    def spend(self, session: Session, job_ids: Sequence[int]) -> "Allowance":
        """Take the costs of claimed jobs out of the buckets' rows. Return the allowance then left.

        It runs in the transaction of the claim, which the caller rolls back on NotEnoughTokens: the
        jobs cost more than there are tokens.
        """
        left = None if self.room is None else self.room - len(job_ids)
        buckets = tuple(bucket.spend(session, job_ids) for bucket in self.buckets)
        return Allowance(left, buckets, len(job_ids))

    def name_limit(self, claimed: Claimed, next_cost: float) -> Claimed:
        """Return the result of a claim with the limit that kept it from more jobs as its refusal.

        This allowance is what the claim left. If it has tokens for a further job, which costs
        `next_cost`, the result has `more` in place of a refusal.
        """
        if self.room == 0 or not self.buckets:
            # The transaction that makes room wakes the waiters, so no claim has to come before.
            return claimed._replace(refusal=Refusal.MAX_IN_FLIGHT, more=False, next_due=None)
        due = self.time_to(next_cost)
        if not due:  # Jobs were cheaper than those before.
            return claimed._replace(more=True)
        return claimed._replace(refusal=Refusal.RATE_LIMITED, more=False, next_due=due)


def lock_allowance(session: Session, consumer_id: int, group_id: int | None) -> Allowance | None:
    """Lock group and consumer until the transaction ends, and return what their limits allow.

    Return None if the consumer has another group, or does not exist.
    """
    if group_id is not None:
        session.run("lock_group", {"group_id": group_id})
    session.run("lock_consumer", {"consumer_id": consumer_id})
    rows = session.run("allowance", {"consumer_id": consumer_id, "group_id": group_id})
    if not rows:
        return None
    rooms = [row.room for row in rows if row.room is not None]
    return Allowance(min(rooms, default=None), tuple(_to_buckets(rows)))


def _to_buckets(rows: Iterable[Any]) -> Iterable[Bucket]:
    for row in rows:
        if row.tokens is not None:
            fields = row._asdict()
            del fields["room"]
            yield Bucket(**fields, learned_at=time.monotonic())


def give_back(session: Session, released: Sequence[Held]) -> None:
    """Give the tokens of jobs that this transaction has released back to their buckets."""
    if released:
        session.run("give_back", held_columns(released))
