"""Queries of the HTTP API: the queue of a consumer, jobs by their ids, callers by their names."""

from collections.abc import Collection
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from django.db.models import OuterRef, Subquery

from pulljobs.engine.encodings import array, integer_array
from pulljobs.engine.low_water_marks import Entry, Position, Snapshot
from pulljobs.engine.outcomes import Held
from pulljobs.engine.sql import Row
from pulljobs.models import ArchivedJob, Channel, Consumer, Job, Lease
from pulljobs.states import State
from pulljobs.storage.statements import run

M = TypeVar("M", Channel, Consumer)
ConsumerNames = tuple[str, str]
"""Names of a channel and of a consumer."""
Caller = tuple[Channel, Consumer | None]
"""Channel, and its consumer or None if it has no such consumer."""


class JobOwner(NamedTuple):
    """Consumer that a job belongs to."""

    consumer_id: int
    has_key: bool = False
    """True if the job is live and has a key, so that its settlement may free the key."""


class Place(NamedTuple):
    """Position of a job in the claim order of its consumer: by priority, time and id."""

    priority: int
    available_at: datetime
    id: int


class WaitingJob(NamedTuple):
    id: int
    message_id: int
    priority: int
    available_at: datetime
    incremental_timeout: timedelta | None

    @property
    def place(self) -> Place:
        return Place(self.priority, self.available_at, self.id)


class AddressedJob(NamedTuple):
    """Job that a request names by its id, and the facts by which its holder may report on it."""

    id: int
    consumer_id: int
    state: State
    lease_token: UUID | None
    """Token of the lease that holds the job, or under which it was settled."""
    via: str | None
    """Way in which an INFLIGHT job was claimed, one of `Lease.Via`, else None."""


class Listed(NamedTuple):
    """Result of `queued`: waiting jobs, and how far the search came, for `LowWaterMarks.learn`."""

    server_started_at: datetime
    started_at: datetime
    snapshot: Snapshot
    next_xid: int
    """Next transaction id: transactions that begin to write later get this id or a higher one."""
    jobs: list[WaitingJob]
    reached: dict[int, Position]


def queued(using: str, consumer_id: int, wanted: int, entry: Entry) -> Listed:
    """Return the ready jobs in the order of plain claims, at most `wanted`, without claiming them.

    The search enters the claim index at `entry`, the known low-water marks.
    """
    where = entry._asdict()
    del where["until"]
    params = {"consumer_id": consumer_id, "wanted": wanted, **where}
    [row] = run(using, "queued", params)
    snapshot = Snapshot.parse(row.snapshot)
    columns = (row.ids, row.message_ids, row.priorities, row.available_ats, row.timeouts)
    positions = map(Position, row.reached_ats, row.reached_ids)
    return Listed(
        row.server_started_at,
        row.started_at,
        snapshot,
        _next_xid(snapshot.ceiling, row.next_after_3),
        list(map(WaitingJob, *columns)),
        dict(zip(row.walked, positions, strict=True)),
    )


def _next_xid(ceiling: int, after_3: int) -> int:
    """Return the server's next transaction id in 64 bits.

    `after_3` is that id less 3, in 32 bits: `age('3'::xid)`. The upper half follows from `ceiling`,
    the 64-bit end of a snapshot, because the next id is not below it.
    """
    return ceiling + (after_3 + 3 - ceiling) % 2**32


_VIA: Final = Subquery(Lease.objects.filter(lease_token=OuterRef("lease_token")).values("via")[:1])
"""Way in which a live job was claimed."""


def is_held(using: str, consumer_id: int, held: Collection[Held]) -> bool:
    """Return True if the consumer holds one of these jobs by a pull over HTTP or a job POST."""
    ids, tokens = {job.job_id for job in held}, {job.lease_token for job in held}
    rows = Job.objects.using(using).filter(id__in=ids, lease_token__in=tokens)
    ours = {(consumer_id, Lease.Via.PULL), (consumer_id, Lease.Via.POST)}
    return not ours.isdisjoint(rows.values_list("consumer_id", _VIA))


def select_held(using: str, held: Collection[Held]) -> set[Held]:
    """Return those of the jobs that are in flight under their lease tokens."""
    if not held:
        return set()
    rows = Job.objects.using(using).filter(id__in=[job.job_id for job in held])
    tokens = dict(rows.values_list("id", "lease_token"))
    return {job for job in held if tokens.get(job.job_id) == job.lease_token}


def addressed(using: str, job_id: int) -> AddressedJob | None:
    """Return a job that is live, or DELIVERED and still in the archive, or None for another id."""
    live = Job.objects.using(using).annotate(via=_VIA).filter(id=job_id).first()
    if live is None:
        return _delivered(using, job_id)
    token = live.lease_token
    if live.state == State.DEAD:
        token = _settled_under(using, job_id)
    return AddressedJob(job_id, live.consumer_id, State(live.state), token, live.via)


def _delivered(using: str, job_id: int) -> AddressedJob | None:
    last = ArchivedJob.objects.using(using).filter(job_id=job_id, state=State.DELIVERED).first()
    if last is None:
        return None
    return AddressedJob(job_id, last.consumer_id, State.DELIVERED, last.lease_token, None)


def _settled_under(using: str, job_id: int) -> UUID | None:
    # Ordered by a column without an index, so that the few rows come by the job's id.
    rows = ArchivedJob.objects.using(using).filter(job_id=job_id).order_by("-settled_at")
    return rows.values_list("lease_token", flat=True).first()


def find_callers(using: str, names: Collection[ConsumerNames]) -> dict[ConsumerNames, Caller]:
    """Return the channel and consumer by the names of both, to authenticate requests.

    The consumer is None if the channel has none of that name. An unknown channel is
    missing. Fields that are not needed to authenticate load when they are first read.
    """
    channels, consumers = zip(*names, strict=True)
    params = {"channels": array(channels), "consumers": array(consumers)}
    return {
        (row.channel, row.consumer): _make_caller(using, row)
        for row in run(using, "callers", params)
    }


def _make_caller(using: str, row: Row) -> Caller:
    channel = _load(
        Channel, using, id=row.channel_id, name=row.channel, token_digest=row.channel_digest
    )
    if row.id is None:
        return channel, None
    fields = row._asdict() | {"name": row.consumer}
    del fields["channel"], fields["consumer"], fields["channel_digest"]
    consumer = _load(Consumer, using, **fields)
    consumer.channel = channel
    return channel, consumer


def _load(model: type[M], using: str, **fields: Any) -> M:
    """Return an instance of a model with these fields only. Others load when first read."""
    names = _in_order(model, frozenset(fields))
    return model.from_db(using, names, [fields[name] for name in names])


@cache
def _in_order(model: type[M], names: frozenset[str]) -> dict[str, None]:
    """Return names of fields in the order of the model's declaration, as Django's `from_db` needs.

    They are the keys of a dict, because Django looks each of its fields up in them.
    """
    ordered = (field.attname for field in model._meta.concrete_fields)
    return dict.fromkeys(name for name in ordered if name in names)


def jobs_of(using: str, consumer_id: int, job_ids: Collection[int]) -> set[int]:
    """Return the ids of those of the jobs, live or archived, that belong to the consumer."""
    owners = owners_of(using, job_ids)
    return {job_id for job_id, owner in owners.items() if owner.consumer_id == consumer_id}


def owners_of(using: str, job_ids: Collection[int]) -> dict[int, JobOwner]:
    """Return the consumer of each job, live or archived, by job id. Unknown ids are left out."""
    rows = run(using, "owners", {"job_ids": integer_array(job_ids)}) if job_ids else []
    owners = {row.id: JobOwner(row.consumer_id, row.has_key) for row in rows}
    for job_id in set(job_ids) - owners.keys():
        # One by one: a join might scan days that were not analyzed yet.
        settled = ArchivedJob.objects.using(using).filter(job_id=job_id)
        for consumer_id in settled.values_list("consumer_id", flat=True)[:1]:
            owners[job_id] = JobOwner(consumer_id)
    return owners
