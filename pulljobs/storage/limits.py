"""Limits of a consumer: tokens of its rates, claims of one job, and room for more jobs."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from math import ceil
from typing import NamedTuple

from pulljobs.engine.claiming.guarded import read_guards
from pulljobs.engine.claiming.limits import NotEnoughTokens, lock_allowance
from pulljobs.engine.encodings import integer_array
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.models import Consumer
from pulljobs.states import Event
from pulljobs.storage import keys, turns
from pulljobs.storage.rows import NotYet, Refusal, Taken
from pulljobs.storage.statements import AliasSession, run
from pulljobs.storage.transactions import after_commit, brief
from pulljobs.storage.turns import TakeResult

TakeJob = Callable[[], TakeResult]


class BucketLevel(NamedTuple):
    """Tokens that the rate limit of a consumer or limit group has now: a row of bucket.sql."""

    group_id: int
    """Id of the limit group, or 0 for the consumer's own rate."""
    now: datetime
    tokens: float
    per_second: float
    burst: float
    window_seconds: float | None
    seconds_to_window: float | None

    def time_of(self, tokens: float) -> datetime:
        """Return the earliest time at which the limit has `tokens` tokens, if no job takes any."""
        missing = max(tokens - self.tokens, 0)
        if not missing:
            return self.now
        if self.window_seconds is None or self.seconds_to_window is None:
            return self.now + timedelta(seconds=missing / self.per_second)
        windows = max(ceil((tokens - max(self.tokens, 0)) / self.burst) - 1, 0)
        return self.now + timedelta(seconds=self.seconds_to_window + windows * self.window_seconds)


def read_buckets(using: str, consumer: Consumer) -> list[BucketLevel]:
    """Return the tokens of each rate limit of a consumer: its own and that of its limit group."""
    params = {"consumer_id": consumer.pk, "group_id": consumer.limit_group_id}
    return run(using, "bucket", params, kind=BucketLevel)


def find_unstarted(settlements: Sequence[Settlement]) -> list[Held]:
    """Return the released jobs that are not known to have started: they give their tokens back."""
    return [
        each.held
        for each in settlements
        if each.event is Event.RELEASE and not each.started and each.run.begun_at is None
    ]


def find_locked(using: str, settlements: Sequence[Settlement]) -> set[int]:
    """Lock the rates to which released jobs give tokens back, without waiting.

    Return the ids of the jobs for which another transaction has such a rate locked.
    """
    if not (released := find_unstarted(settlements)):
        return set()
    params = {"job_ids": integer_array(held.job_id for held in released)}
    return {row.id for row in run(using, "locked_tokens", params)}


def take(using: str, consumer_id: int, job_id: int, take_job: TakeJob) -> TakeResult:
    """Call `take_job`, which claims a job by its id, if the consumer's limits allow one more.

    `take_job` runs under the locks of the limits and of the job's key. Return its result, or the
    limit that refuses the claim.
    """
    while True:
        guards = read_guards(AliasSession(using), consumer_id)
        try:
            with brief(using):
                taken = _take_under_limits(using, consumer_id, job_id, guards.group_id, take_job)
        except NotEnoughTokens as refused:
            return NotYet(Refusal.RATE_LIMITED, refused.wait)
        if taken is not Refusal.UNGUARDED:
            return taken


def _take_under_limits(
    using: str, consumer_id: int, job_id: int, group_id: int | None, take_job: TakeJob
) -> TakeResult:
    """Claim a job under the locks of the limits of its consumer and of the group `group_id`.

    Return UNGUARDED if the consumer has another limit group by now: the caller then reads the
    limits again.
    """
    session = AliasSession(using)
    allowance = lock_allowance(session, consumer_id, group_id)
    if allowance is None:
        is_known = Consumer.objects.using(using).filter(pk=consumer_id).exists()
        return Refusal.UNGUARDED if is_known else take_job()
    if not allowance.most(1):
        allowance.spend(session, [])
        return allowance.refusal
    by_turn = partial(turns.take, using, consumer_id, job_id, take_job)
    taken = keys.take(using, consumer_id, job_id, by_turn)
    allowance.spend(session, [job_id] if isinstance(taken, Taken) else [])
    return taken


def with_members(using: str, roomier: Collection[int], grouped: Collection[int]) -> frozenset[int]:
    """Return the `roomier` consumers, and all that share `max_in_flight` with the `grouped` ones.

    All of them may claim more jobs, because a job in flight has ended.
    """
    members: set[int] = set()
    if grouped:
        with after_commit(using, "the search for members of a limit group"):
            rows = run(using, "members", {"consumer_ids": integer_array(sorted(grouped))})
            members = {row.id for row in rows}
    return frozenset(roomier) | members
