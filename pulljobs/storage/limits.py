"""Claims of one job by its id within its consumer's limits, and claims within a number of bytes."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import transaction

from pulljobs.engine.claiming.limits import lock_allowance
from pulljobs.storage import keys, listen, messages
from pulljobs.storage.rows import Claimed, HeldJob, NotYet, Refusal, Taken
from pulljobs.storage.statements import LOCK_SECONDS, AliasSession, brief, run

Work = Callable[[int], Claimed]
"""Function that claims at most that many jobs."""
TakeResult = Taken | Refusal | NotYet | None
"""New lease of one job, or the reason for getting none. None: the job is in another state."""
Take = Callable[[], TakeResult]


class BucketLevel(NamedTuple):
    """Row of bucket.sql: the tokens of a consumer with a rate at a moment."""

    now: datetime
    tokens: float
    per_second: float
    burst: float

    def time_of(self, jobs: int) -> datetime:
        """Return the earliest time at which so many jobs have been claimed."""
        missing = max(jobs - self.tokens, 0)
        return self.now + timedelta(seconds=missing / self.per_second)


def read_bucket(using: str, consumer_id: int) -> BucketLevel | None:
    """Return the level of the consumer's bucket, or None without a rate."""
    rows = run(using, "bucket", {"consumer_id": consumer_id}, kind=BucketLevel)
    return rows[0] if rows else None


def take(using: str, consumer_id: int, job_id: int, work: Take) -> TakeResult:
    """Return the result of `work` under the lock of the job's key, if the limits allow a job."""
    session = AliasSession(using)
    with brief(using):
        allowance = lock_allowance(session, consumer_id)
        if allowance is not None and not allowance.jobs:
            allowance.spend(session, 0)
            return allowance.refusal
        taken = keys.take(using, consumer_id, job_id, work)
        if allowance is not None:
            allowance.spend(session, int(isinstance(taken, Taken)))
        return taken


def throttle(using: str, seconds: Mapping[int, float]) -> None:
    """Throttle these consumers for so many seconds, and wake their waiters.

    Woken processes learn of it by a claim that gets nothing, and start none of the jobs that they
    claimed before.
    """
    ids = sorted(seconds)
    params = {"consumer_ids": ids, "seconds": [seconds[id] for id in ids]}
    with brief(using, lock_seconds=LOCK_SECONDS):
        rows = run(using, "throttle", params)
    listen.wake_on_commit(using, [row.id for row in rows])


def fitting(using: str, wanted: int, max_bytes: int, work: Work) -> Claimed:
    """Claim as many jobs as fit in `max_bytes`: roll back and claim fewer until all fit."""
    tried = wanted
    while True:
        with brief(using):
            claimed = work(tried)
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
    """Return how many jobs fit, from the first on. A skipped job would let small jobs overtake."""
    if not jobs:
        return 0
    read = messages.read_messages(using, [job.message_id for job in jobs])
    left = max_bytes
    for fitting, job in enumerate(jobs):
        left -= read[job.message_id].size
        if left < 0:
            return fitting
    return len(jobs)
