"""Actions of operators on batches: cancel and redrive."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from pulljobs import hooks, ids, operating
from pulljobs.conf import settings
from pulljobs.errors import UnknownBatch
from pulljobs.models import Job
from pulljobs.states import Reason, State
from pulljobs.storage import batches, jobs
from pulljobs.storage.statements import run
from pulljobs.storage.transactions import brief
from pulljobs.workflows.models import Batch, BatchPart

CHUNK: Final = 1000


def cancel(id: int | str, *, by: str = "the program") -> int:
    """Kill the queued members of a batch and of the batches in it. Return how many were killed.

    The batch takes no members any more, and completes when those in flight have ended. The call
    waits for publishers that are adding members. A complete batch stays as it is. If the process
    dies, call it again. Raise UnknownBatch.
    """
    return cancel_rows([find(id)], by=by)


def cancel_rows(rows: Iterable[Batch], *, by: str) -> int:
    """Cancel batches in this order, as `cancel` does. Return how many members were killed."""
    return sum(killed for batch in rows for killed in cancelling(batch, by=by))


def cancelling(batch: Batch, *, by: str) -> Iterator[int]:
    """Cancel a batch in chunks, and yield how many members were killed in each of them."""
    using = settings().DATABASE
    with brief(using):
        # Publishers share a lock that this one waits for, so their members are seen below.
        list(Batch.objects.using(using).select_for_update().filter(pk=batch.pk))
        run(using, "close_batch", {"batch_id": batch.pk, "is_cancelled": True})
        batches.announce(using, [batch.pk])
    for nested in nested_in(using, batch.pk):
        yield from cancelling(nested, by=by)
    for job_ids in job_ids_of(using, batch.pk):
        error = f"batch {ids.encode(batch.pk)} was cancelled by {by}"
        killed = jobs.kill(using, job_ids, reason=Reason.KILLED, error=error, states=[State.QUEUED])
        for name in hooks.kill_listeners:  # A member may be a run with children of its own.
            hooks.load(name)(list(killed))
        yield len(killed)


def redrive(id: int | str) -> int:
    """Queue the dead members of a batch and of the batches in it again. Return their number.

    If a complete batch has dead members, another round begins, and its callbacks are published
    again at the end. A cancelled batch takes members again. Raise UnknownBatch.
    """
    return sum(redriving(find(id)))


def redriving(batch: Batch) -> Iterator[int]:
    """Redrive a batch in chunks, and yield how many members were queued in each of them."""
    using = settings().DATABASE
    Batch.objects.using(using).filter(pk=batch.pk).update(cancelled_at=None)
    for nested in nested_in(using, batch.pk):
        yield from redriving(nested)
    yield from _act_on_dead(using, batch.pk, lambda dead: len(operating.redrive(dead).done))


def find(id: int | str) -> Batch:
    """Return the row of a batch, or raise UnknownBatch."""
    row = Batch.objects.using(settings().DATABASE).filter(pk=find_number(id)).first()
    if row is None:
        raise UnknownBatch(repr(id))
    return row


def find_number(id: int | str) -> int:
    """Return the id of a batch as a number, or raise UnknownBatch for a text that is no id."""
    number = ids.find_number(id)
    if number is None:
        raise UnknownBatch(repr(id))
    return number


def nested_in(using: str, batch_id: int, *, limit: int | None = None) -> Iterator[Batch]:
    """Yield the `limit` oldest batches that are members of a batch, or all, in order of ids."""
    yield from Batch.objects.using(using).filter(parent_id=batch_id).order_by("id")[:limit]


def job_ids_of(using: str, batch_id: int) -> Iterator[list[int]]:
    """Yield lists of up to `CHUNK` job ids of a batch's members, in the order of publishing."""
    last = 0
    parts = BatchPart.objects.using(using).filter(batch_id=batch_id).order_by("id")
    while part := parts.filter(id__gt=last).first():
        last = part.id
        for start in range(0, len(part.job_ids), CHUNK):
            yield part.job_ids[start : start + CHUNK]


def dead_ids(using: str, batch_id: int, *, after: int = 0, limit: int = CHUNK) -> list[int]:
    """Return up to `limit` job ids above `after` of dead members of a batch, in order."""
    rows = Job.objects.using(using).filter(batch_id=batch_id, reason__isnull=False, id__gt=after)
    return list(rows.order_by("id").values_list("id", flat=True)[:limit])


def _act_on_dead(using: str, batch_id: int, act: Callable[[list[int]], int]) -> Iterator[int]:
    last = 0
    while dead := dead_ids(using, batch_id, after=last):
        yield act(dead)
        last = dead[-1]
