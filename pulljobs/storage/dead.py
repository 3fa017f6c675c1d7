"""The DEAD jobs of a consumer, a batch at a time."""

from django.db import transaction
from django.db.models import QuerySet

from pulljobs.models import Job
from pulljobs.storage import jobs


def ids(using: str, consumer_id: int, *, after: int, limit: int) -> list[int]:
    """The lowest ids above that one."""
    rows = _dead(using, consumer_id).filter(id__gt=after).order_by("id")
    return list(rows.values_list("id", flat=True)[:limit])


def delete(using: str, consumer_id: int, retries: int, job_id: int | None, *, limit: int) -> int:
    """Of those that were tried again so often, or of the one: how many are gone."""
    rows = _dead(using, consumer_id).filter(retry_count__gte=retries)
    if job_id is not None:
        rows = rows.filter(id=job_id)
    with transaction.atomic(using=using):
        # Locked, so that nobody redrives one in between.
        locked = rows.select_for_update().order_by("id").values_list("id", flat=True)[:limit]
        return len(jobs.delete(using, list(locked)))


def _dead(using: str, consumer_id: int) -> QuerySet[Job]:
    # By the reason, as the index of dead jobs has it.
    return Job.objects.using(using).filter(consumer_id=consumer_id, reason__isnull=False)
