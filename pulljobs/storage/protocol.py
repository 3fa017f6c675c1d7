"""What the broker protocol reads: the queue of a consumer, and one job by its id."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db.models import OuterRef, Subquery

from pulljobs.floors import Entry, Position, Snapshot
from pulljobs.models import ArchivedJob, Job, Lease
from pulljobs.states import State
from pulljobs.storage.statements import run


class Place(NamedTuple):
    """Where a job stands in the queue of its consumer."""

    priority: int
    available_at: datetime
    id: int


class QueuedJob(NamedTuple):
    id: int
    message_id: int
    priority: int
    available_at: datetime
    incremental_timeout: timedelta | None

    @property
    def place(self) -> Place:
        return Place(self.priority, self.available_at, self.id)


class AddressedJob(NamedTuple):
    """A job as a job POST finds it."""

    id: int
    consumer_id: int
    state: State
    token: UUID | None
    """The lease that holds it; of a settled job the one it was settled under."""
    door: str | None
    """By which way it was taken, while it is INFLIGHT."""


class Listed(NamedTuple):
    """Jobs that wait, and what the look at them saw (for `Floors.learn`)."""

    server_started_at: datetime
    started_at: datetime
    snapshot: Snapshot
    jobs: list[QueuedJob]
    reached: dict[int, Position]


def queued(using: str, consumer_id: int, wanted: int, entry: Entry) -> Listed:
    """The next jobs in the order in which claims take them."""
    where = entry._asdict()
    del where["until"]
    params = {"consumer_id": consumer_id, "wanted": wanted, **where}
    [row] = run(using, "queued", params)
    server_started_at, started_at, snapshot, *arrays = row
    *jobs, walked, ats, ids = arrays
    return Listed(
        server_started_at,
        started_at,
        Snapshot.parse(snapshot),
        list(map(QueuedJob, *jobs)),
        dict(zip(walked, map(Position, ats, ids), strict=True)),
    )


def addressed(using: str, job_id: int) -> AddressedJob | None:
    """The live job, else a DELIVERED one while the archive has it; a deleted one is unknown."""
    door = Lease.objects.filter(token=OuterRef("lease")).values("door")[:1]
    live = Job.objects.using(using).annotate(door=Subquery(door)).filter(id=job_id).first()
    if live is None:
        return _delivered(using, job_id)
    token = live.lease
    if live.state == State.DEAD:
        token = _settled_under(using, job_id)
    return AddressedJob(job_id, live.consumer_id, State(live.state), token, live.door)


def _delivered(using: str, job_id: int) -> AddressedJob | None:
    last = ArchivedJob.objects.using(using).filter(job_id=job_id, state=State.DELIVERED).first()
    if last is None:
        return None
    return AddressedJob(job_id, last.consumer_id, State.DELIVERED, last.lease_token, None)


def _settled_under(using: str, job_id: int) -> UUID | None:
    # Ordered by a column without an index, so that the few rows come by the job's id.
    rows = ArchivedJob.objects.using(using).filter(job_id=job_id).order_by("-settled_at")
    return rows.values_list("lease_token", flat=True).first()


def jobs_of(using: str, consumer_id: int, job_ids: Collection[int]) -> set[int]:
    """Those of the jobs that are this consumer's: live ones, and settled ones by their history."""
    live = Job.objects.using(using).filter(id__in=job_ids)
    owners = dict(live.values_list("id", "consumer_id"))
    for job_id in set(job_ids) - owners.keys():
        # One by one: a join might scan days that nobody has analyzed yet.
        settled = ArchivedJob.objects.using(using).filter(job_id=job_id)
        owners |= settled.values_list("job_id", "consumer_id")[:1]
    return {job_id for job_id, owner in owners.items() if owner == consumer_id}
