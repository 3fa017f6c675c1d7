"""Reading a batch: counts, progress, results, dead members, and waiting for its end."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple

from asgiref.sync import sync_to_async

from pulljobs.conf import settings
from pulljobs.engine.sql import Row
from pulljobs.errors import PulljobsError, UnknownBatch
from pulljobs.jobs import pauses
from pulljobs.models import ArchivedJob, Job
from pulljobs.states import State
from pulljobs.storage import settlements
from pulljobs.storage.sessions import in_transaction
from pulljobs.storage.statements import run
from pulljobs.workflows.batches.acting import CHUNK, find, find_number, job_ids_of, nested_in

BatchState = Literal["open", "closed", "cancelled", "completed"]
SHOWN: Final = 100
CAP: Final = 100_000


class DeadMember(NamedTuple):
    """Dead member of a batch, with the reason and the error of its death."""

    job_id: int
    channel: str
    consumer: str
    reason: str
    error: str | None


class MemberResult(NamedTuple):
    """Member of a batch, with its result if it was delivered."""

    job_id: int
    state: State | None
    """State of the job, or None if the job was deleted or its history was dropped."""
    result: Any
    """JSON value that the handler returned."""
    error: str | None


@dataclass(frozen=True, slots=True)
class BatchView:
    """Batch with its exact counts at the time `now` of the database."""

    id: int
    name: str
    parent_id: int | None
    run_id: int | None
    round: int
    members: int
    delivered: int
    dead: int
    redriven: int
    created_at: datetime
    closed_at: datetime | None
    cancelled_at: datetime | None
    completed_at: datetime | None
    error: str | None
    """Reason why a callback was refused. The batch is not complete until it is published."""
    now: datetime

    @property
    def live(self) -> int:
        """Number of members that have not ended, including batches in this batch."""
        return self.members - self.delivered - self.dead

    @property
    def state(self) -> BatchState:
        """State of the batch, where `cancelled` lasts until the members in flight have ended."""
        if self.completed_at is not None:
            return "completed"
        if self.cancelled_at is not None:
            return "cancelled"
        return "open" if self.closed_at is None else "closed"

    @property
    def progress(self) -> float:
        """Percent of the members that have ended, 100.0 only if all have."""
        if not self.members:
            return 0.0 if self.completed_at is None else 100.0
        ended = self.delivered + self.dead
        return 100.0 if ended == self.members else min(99.9, round(100 * ended / self.members, 1))

    @property
    def expected_at(self) -> datetime | None:
        """Expected end at the average speed so far. None if no member has ended, or all have.

        It is also None beyond the year 9999: one member of a million may have ended after days.
        """
        ended = self.delivered + self.dead
        if not ended or not self.live:
            return None
        with suppress(OverflowError):
            return self.now + (self.now - self.created_at) * (self.live / ended)
        return None

    def dead_members(self, limit: int = SHOWN) -> list[DeadMember]:
        """Return the `limit` oldest dead members, without those of batches in this batch."""
        return read_dead(self.id, limit=limit)

    def nested(self, limit: int | None = None) -> list["BatchView"]:
        """Return the `limit` oldest batches that are members of this batch, by default all."""
        nested = nested_in(settings().DATABASE, self.id, limit=limit)
        return read_views([row.pk for row in nested])


def get(id: int | str) -> BatchView:
    """Return the batch with its counts, or raise UnknownBatch."""
    views = read_views([find_number(id)])
    if not views:
        raise UnknownBatch(repr(id))
    return views[0]


async def aget(id: int | str) -> BatchView:
    """Return the batch with its counts from async code, or raise UnknownBatch."""
    return await sync_to_async(get)(id)


def read_views(batch_ids: Sequence[int]) -> list[BatchView]:
    """Return the batches of these ids that exist, the oldest first."""
    rows = run(settings().DATABASE, "count_batches", {"batch_ids": list(batch_ids)})
    return [_view(row) for row in rows]


def wait(id: int | str, timeout: float | timedelta) -> BatchView | None:
    """Wait for the end of the batch and return it, or None after `timeout`.

    A number is in seconds. Raise UnknownBatch, and PulljobsError inside a transaction, whose own
    members would never run.
    """
    if in_transaction(settings().DATABASE):
        raise PulljobsError(
            "batches.wait() can't see a commit from inside a transaction: leave it first."
        )
    for _pause in pauses(timeout):
        view = get(id)
        if view.completed_at is not None:
            return view
    return None


def results(id: int | str) -> Iterator[MemberResult]:
    """Yield the members in the order in which they were published, without nested batches.

    At most 1000 are read at a time. UnknownBatch is raised when the first is asked for.
    """
    using = settings().DATABASE
    batch = find(id)
    for job_ids in job_ids_of(using, batch.pk):
        yield from _read_results(using, job_ids)


def read_dead(batch_id: int, *, after: int = 0, limit: int = CHUNK) -> list[DeadMember]:
    """Return up to `limit` dead members with job ids above `after`, oldest first."""
    rows = Job.objects.using(settings().DATABASE).filter(
        batch_id=batch_id, reason__isnull=False, id__gt=after
    )
    columns = rows.order_by("id").values_list(
        "id", "consumer__channel__name", "consumer__name", "reason", "error"
    )
    return [
        DeadMember(id, channel, consumer, str(reason), error)
        for id, channel, consumer, reason, error in columns[:limit]
    ]


def count_in_flight(batch_id: int, cap: int = CAP) -> int:
    """Count the members in flight. The number may be too low if leases hold over `cap` jobs."""
    params = {"batch_id": batch_id, "cap": cap}
    [row] = run(settings().DATABASE, "count_in_flight", params)
    jobs: int = row.jobs
    return jobs


def _read_results(using: str, job_ids: list[int]) -> Iterable[MemberResult]:
    live = {row.id: row for row in Job.objects.using(using).filter(id__in=job_ids)}
    # Read after the live jobs: a job that is delivered in between is in one of the two.
    archive = ArchivedJob.objects.using(using).filter(job_id__in=job_ids, state=State.DELIVERED)
    delivered = {row.job_id: row for row in settlements.since(archive, job_ids)}
    for job_id in job_ids:
        if job_id in delivered:
            yield MemberResult(job_id, State.DELIVERED, delivered[job_id].result, None)
        elif job_id in live:
            job = live[job_id]
            yield MemberResult(job_id, State(job.state), None, job.error)
        else:
            yield MemberResult(job_id, None, None, None)


def _view(row: Row) -> BatchView:
    return BatchView(**row._asdict())
