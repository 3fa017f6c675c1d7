"""Claims of one job by its id within its consumer's bounds, and claims within a number of bytes."""

from collections.abc import Callable

from django.db import transaction

from pulljobs.engine.claiming import guarded
from pulljobs.storage import keys, messages
from pulljobs.storage.rows import Claimed, HeldJob, Refusal, Taken
from pulljobs.storage.statements import AliasSession, brief

Work = Callable[[int], Claimed]
"""Claims as many as it is told to."""
Take = Callable[[], Taken | Refusal | None]


def take(using: str, consumer_id: int, job_id: int, work: Take) -> Taken | Refusal | None:
    """What `work` takes, if there is room for one, under the lock of its key."""
    with brief(using):
        if guarded.lock_room(AliasSession(using), consumer_id) == 0:
            return Refusal.MAX_IN_FLIGHT
        return keys.take(using, consumer_id, job_id, work)


def fitting(using: str, wanted: int, max_bytes: int, work: Work) -> Claimed:
    """As many as fit, found by claiming fewer each time; a rollback leaves the others untouched."""
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
    """How many from the first on; nothing is skipped, for that would let small ones overtake."""
    if not jobs:
        return 0
    read = messages.read(using, [job.message_id for job in jobs])
    left = max_bytes
    for fitting, job in enumerate(jobs):
        left -= read[job.message_id].size
        if left < 0:
            return fitting
    return len(jobs)
