"""Claims of one job by its id within limits, claims up to a size in bytes, and throttles."""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from functools import partial
from math import ceil
from typing import NamedTuple

from django.db import transaction

from pulljobs.engine.claiming.guarded import read_guards
from pulljobs.engine.claiming.keyed import Key
from pulljobs.engine.claiming.limits import NotEnoughTokens, lock_allowance
from pulljobs.engine.encodings import integer_array
from pulljobs.models import Consumer, Job
from pulljobs.storage import keys, listen, messages, turns
from pulljobs.storage.rows import Claimed, HeldJob, NotYet, Refusal, Taken
from pulljobs.storage.sessions import LOCK_SECONDS
from pulljobs.storage.statements import AliasSession, run
from pulljobs.storage.transactions import after_commit, brief
from pulljobs.storage.turns import TakeResult

Work = Callable[[int], Claimed | None]
"""Function that claims at most that many jobs. None: the rules of the consumer have changed."""
Take = Callable[[], TakeResult]


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


def take(using: str, consumer_id: int, job_id: int, work: Take) -> TakeResult:
    """Call `work`, which claims a job by its id, if the consumer's limits allow one more job.

    `work` runs under the locks of the limits and of the job's key. Return its result, or the limit
    that refuses the claim.
    """
    while True:
        guards = read_guards(AliasSession(using), consumer_id)
        try:
            with brief(using):
                taken = _take(using, consumer_id, job_id, guards.group_id, work)
        except NotEnoughTokens as refused:
            return NotYet(Refusal.RATE_LIMITED, refused.wait)
        if taken is not Refusal.UNGUARDED:
            return taken


def _take(
    using: str, consumer_id: int, job_id: int, group_id: int | None, work: Take
) -> TakeResult:
    """Claim a job under the locks of its consumer's limits and of the limit group read before.

    Return UNGUARDED if the consumer has got another limit group since: the caller then reads the
    limits again.
    """
    session = AliasSession(using)
    allowance = lock_allowance(session, consumer_id, group_id)
    if allowance is None:
        return Refusal.UNGUARDED if Consumer.objects.using(using).filter(pk=consumer_id) else work()
    if not allowance.most(1):
        allowance.spend(session, [])
        return allowance.refusal
    by_turn = partial(turns.take, using, consumer_id, job_id, work)
    taken = keys.take(using, consumer_id, job_id, by_turn)
    allowance.spend(session, [job_id] if isinstance(taken, Taken) else [])
    return taken


def with_members(using: str, roomier: Collection[int], grouped: Collection[int]) -> frozenset[int]:
    """Return the `roomier` consumers, and the members of the limit groups of the `grouped` ones.

    All of them may claim more jobs, because a job in flight has ended.
    """
    members: set[int] = set()
    if grouped:
        with after_commit(using, "the search for members of a limit group"):
            rows = run(using, "members", {"consumer_ids": integer_array(sorted(grouped))})
            members = {row.id for row in rows}
    return frozenset(roomier) | members


def throttle(using: str, seconds: Mapping[int, float]) -> None:
    """Throttle consumers, each for its number of seconds, and wake their waiters.

    The next claim of a woken process gets no job, but reports the throttle. The process then
    starts none of the jobs that it claimed before.
    """
    ids = sorted(seconds)
    params = {"consumer_ids": ids, "seconds": [seconds[id] for id in ids]}
    with brief(using, lock_seconds=LOCK_SECONDS):
        rows = run(using, "throttle", params)
    listen.wake_on_commit(using, [row.id for row in rows])


def throttle_keys(using: str, seconds: Mapping[Key, float]) -> None:
    """Throttle keys, each for its number of seconds.

    A consumer whose keys do not take turns is throttled itself.
    """
    by_turn = turns.throttle(using, seconds)
    others: dict[int, float] = {}
    for (consumer_id, _key), left in seconds.items():
        if consumer_id not in by_turn:
            others[consumer_id] = max(left, others.get(consumer_id, 0.0))
    if others:
        throttle(using, others)


def throttle_keys_of_jobs(using: str, consumer_id: int, seconds: Mapping[int, float]) -> None:
    """Throttle the keys of live jobs of a consumer, given the seconds by job id."""
    rows = Job.objects.using(using).filter(id__in=seconds, consumer_id=consumer_id)
    of_keys: dict[Key, float] = {}
    for id, turn_key in rows.values_list("id", "turn_key"):
        key = consumer_id, turn_key or ""
        of_keys[key] = max(seconds[id], of_keys.get(key, 0.0))
    if of_keys:
        throttle_keys(using, of_keys)


def fitting(using: str, wanted: int, max_bytes: int, work: Work) -> Claimed | None:
    """Claim up to `wanted` jobs whose messages together have at most `max_bytes`.

    `work` claims a number of jobs. If they are too large, the claim is rolled back and fewer are
    claimed. The result has the refusal MAX_BYTES if the size kept a job out, or is None if that of
    `work` is.
    """
    tried = wanted
    while True:
        with brief(using):
            claimed = work(tried)
            if claimed is None:
                return None
            fit = _fitting(using, claimed.jobs, max_bytes)
            if fit == len(claimed.jobs):
                break
            transaction.set_rollback(True, using=using)
        if not fit:
            return claimed.without_jobs(Refusal.MAX_BYTES)
        tried = fit
    cut = tried < wanted and len(claimed.jobs) == tried and claimed.refusal is None
    return claimed._replace(refusal=Refusal.MAX_BYTES) if cut else claimed


def _fitting(using: str, jobs: list[HeldJob], max_bytes: int) -> int:
    """Return how many jobs from the first on fit in `max_bytes`.

    No large job is skipped, because smaller ones would overtake it for ever.
    """
    if not jobs:
        return 0
    read = messages.read_messages(using, [job.message_id for job in jobs])
    left = max_bytes
    for fitting, job in enumerate(jobs):
        left -= read[job.message_id].size
        if left < 0:
            return fitting
    return len(jobs)
