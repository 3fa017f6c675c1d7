"""Queries on the DEAD jobs of consumers, and their deletion in batches."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from django.db import transaction
from django.db.models import QuerySet

from pulljobs.models import Job
from pulljobs.storage import jobs
from pulljobs.storage.statements import run

COUNTED: Final = 10_000
"""Largest count of a consumer's DEAD jobs. Counting reads a narrow index."""


class Dead(NamedTuple):
    consumer_id: int
    id: int
    reason: str
    error: str | None
    """First 500 characters of the error."""


def newest(using: str, consumer_ids: Sequence[int], wanted: int) -> list[Dead]:
    """Return the newest DEAD jobs, at most `wanted` of each consumer."""
    params = {"consumer_ids": list(consumer_ids), "wanted": wanted}
    return run(using, "newest_dead", params, kind=Dead)


def counts(using: str, consumer_ids: Sequence[int], cap: int = COUNTED) -> dict[int, int]:
    """Return the number of DEAD jobs by consumer id, or `cap` if there are more."""
    params = {"consumer_ids": list(consumer_ids), "cap": cap}
    return {row.consumer_id: row.dead for row in run(using, "count_dead", params)}


def ids(using: str, consumer_id: int, *, after: int, limit: int) -> list[int]:
    """Return ids of a consumer's DEAD jobs: the lowest `limit` above `after`, ascending."""
    rows = _dead(using, consumer_id).filter(id__gt=after).order_by("id")
    return list(rows.values_list("id", flat=True)[:limit])


def delete(using: str, consumer_id: int, retries: int, job_id: int | None, *, limit: int) -> int:
    """Delete up to `limit` DEAD jobs of a consumer that were retried at least `retries` times.

    Return their number. With `job_id`, only this job is deleted, if it is one of them.
    """
    rows = _dead(using, consumer_id).filter(retry_count__gte=retries)
    if job_id is not None:
        rows = rows.filter(id=job_id)
    with transaction.atomic(using=using):
        # Locked, so that no operator redrives a job in between.
        locked = rows.select_for_update().order_by("id").values_list("id", flat=True)[:limit]
        return len(jobs.delete(using, list(locked)))


def _dead(using: str, consumer_id: int) -> QuerySet[Job]:
    # By the reason, as the index of dead jobs has it.
    return Job.objects.using(using).filter(consumer_id=consumer_id, reason__isnull=False)
