"""Claims of one job by its id within its consumer's bounds, and claims within a number of bytes."""

from collections.abc import Callable

from django.db import transaction

from pulljobs.engine.claiming import guarded
from pulljobs.storage import keys, messages
from pulljobs.storage.rows import Claimed, HeldJob, Refusal, Taken
from pulljobs.storage.statements import AliasSession, brief

Work = Callable[[int], Claimed]
"""Function that claims at most that many jobs."""
Take = Callable[[], Taken | Refusal | None]


def take(using: str, consumer_id: int, job_id: int, work: Take) -> Taken | Refusal | None:
    """Return the result of `work` under the lock of the job's key, if the consumer has room."""
    with brief(using):
        if guarded.lock_room(AliasSession(using), consumer_id) == 0:
            return Refusal.MAX_IN_FLIGHT
        return keys.take(using, consumer_id, job_id, work)


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
