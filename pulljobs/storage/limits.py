"""Claims within bounds: of jobs in flight, and of bytes.

Claims of a consumer that bounds its jobs in flight take turns: each locks the consumer's row before
it counts, so the bound is exact. Consumers without a bound never come here.
"""

from collections.abc import Callable
from typing import NamedTuple

from django.db import transaction
from django.db.models import Q

from pulljobs.models import Consumer
from pulljobs.storage import keys, messages
from pulljobs.storage.rows import Claimed, HeldJob, Refusal, Taken
from pulljobs.storage.statements import run

Work = Callable[[int], Claimed]
"""Claims as many as it is told to."""
Take = Callable[[], Taken | Refusal | None]


class Guards(NamedTuple):
    """What claims of a consumer must mind; read without a lock, for each claim looks again."""

    exclusive: bool = False
    """Its keys."""
    bounded: bool = False
    """How many of its jobs are in flight."""


def guards(using: str, consumer_id: int) -> Guards:
    rows = Consumer.objects.using(using).filter(id=consumer_id)
    bounded = Q(max_in_flight__isnull=False)
    row = rows.annotate(bounded=bounded).values_list("exclusive_keys", "bounded").first()
    return Guards(*row) if row else Guards()


def claim(using: str, consumer_id: int, wanted: int, work: Work) -> Claimed | None:
    """As much of `wanted` as there is room for; None: there is no bound any more."""
    with transaction.atomic(using=using):
        room = _room(using, consumer_id)
        if room is None:
            return None
        claimed = work(min(room, wanted))
    if room < wanted and claimed.refusal is None and len(claimed.jobs) == room:
        return claimed._replace(refusal=Refusal.MAX_IN_FLIGHT, more=False)
    return claimed


def take(using: str, consumer_id: int, job_id: int, work: Take) -> Taken | Refusal | None:
    """What `work` takes, if there is room for one, under the lock of its key."""
    with transaction.atomic(using=using):
        if _room(using, consumer_id) == 0:
            return Refusal.MAX_IN_FLIGHT
        return keys.take(using, consumer_id, job_id, work)


def fitting(using: str, wanted: int, max_bytes: int, work: Work) -> Claimed:
    """As many as fit, found by claiming fewer each time; a rollback leaves the others untouched."""
    tried = wanted
    while True:
        with transaction.atomic(using=using):
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


def _room(using: str, consumer_id: int) -> int | None:
    """How many more may be claimed until the transaction ends; None: any number."""
    run(using, "lock_consumer", {"consumer_id": consumer_id})
    rows = run(using, "room", {"consumer_id": consumer_id})
    return rows[0][0] if rows else None
