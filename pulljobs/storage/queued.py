"""Batches of all QUEUED jobs of a consumer: claimable, delayed and blocked ones."""

from collections.abc import Iterator
from typing import Final

from django.db.models import QuerySet

from pulljobs.models import Job
from pulljobs.states import State

ABOVE_ALL: Final = 32_768
"""Number above all priorities."""


def batches(using: str, consumer_id: int, *, below: int, size: int) -> Iterator[list[int]]:
    """Yield ids below `below` of QUEUED jobs, `size` at a time, for a caller that kills them.

    Blocked jobs come first.
    """
    rows = Job.objects.using(using).filter(
        consumer_id=consumer_id, state=State.QUEUED, id__lt=below
    )
    # Blocked jobs first: otherwise each would become claimable when the job before it ends.
    yield from _batches(rows.filter(available_at=None), size)
    yield from _batches(rows.filter(available_at__isnull=False), size)


def _batches(rows: QuerySet[Job], size: int) -> Iterator[list[int]]:
    """Yield the ids of jobs in the order of the claim index, `size` at a time.

    The caller removes the jobs of each batch before it takes the next, which begins where the last
    one ended, so that index entries of removed jobs are not read again.
    """
    priority = _next(rows, ABOVE_ALL)
    while priority is not None:
        ahead = own = rows.filter(priority=priority).order_by("available_at", "id")
        while batch := list(ahead.values_list("id", "available_at")[:size]):
            yield [id for id, _at in batch]
            last, at = batch[-1]
            ahead = own.filter(id__gt=last) if at is None else own.filter(available_at__gte=at)
        priority = _next(rows, priority)


def _next(rows: QuerySet[Job], priority: int) -> int | None:
    lower = rows.filter(priority__lt=priority).order_by("-priority")
    return lower.values_list("priority", flat=True).first()
