"""Reasons for which limits of a consumer or of its group keep a job waiting."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.diagnosis import times
from pulljobs.diagnosis.wait_reasons import QueuePosition, WaitReason
from pulljobs.models import Consumer, Job, Lease, LimitGroup, Node
from pulljobs.models.flow import FlowLimits
from pulljobs.states import State
from pulljobs.storage import limits, turns
from pulljobs.storage.limits import BucketLevel
from pulljobs.storage.turns import KeyTurn

SHOWN: Final = 5
"""Jobs in flight that a reason names."""


class SlotHolder(NamedTuple):
    """Job in flight that counts for a concurrency limit which is reached."""

    job: str
    consumer: str
    node: str | None
    """Name of the node, or None for a client over HTTP and if the node's row is deleted."""
    leased_until: datetime


def find(
    job: Job, consumer: Consumer, find_position: Callable[[float], QueuePosition | None]
) -> Iterator[WaitReason]:
    """Yield a reason for each limit of the consumer or its group that holds the job back.

    `find_position` is called with the burst of each rate limit, which bounds the tokens that a job
    takes. If the job has no position in the queue, rate limits are left out.
    """
    group = consumer.limit_group
    if group is not None:
        members = list(group.consumers.select_related("channel"))
        yield from _bound(group, members)
    yield from _bound(consumer, [consumer])
    for level in limits.read_buckets(settings().DATABASE, consumer):
        if job.available_at is None or job.available_at > level.now:
            continue
        if (place := find_position(level.burst)) is None:
            continue
        limited = group if level.group_id and group is not None else consumer
        yield from _rate(job, limited, level, place.cost_before)


def _bound(row: FlowLimits, members: Collection[Consumer]) -> Iterator[WaitReason]:
    if row.max_in_flight is None:
        return
    count, holders = _find_holders(members)
    if count < row.max_in_flight:
        return
    named = ", ".join(f"{each.job} on {each.node or 'a client'}" for each in holders)
    more = "" if count <= len(holders) else f" and {count - len(holders):,} more"
    yield WaitReason(
        "max_in_flight",
        f"Jobs in flight: {count:,}, the max_in_flight of {_describe(row)}: {named}{more}.",
        limit={
            **_name(row),
            "max_in_flight": row.max_in_flight,
            "in_flight": count,
            "holders": [each._asdict() for each in holders],
        },
    )


def _find_holders(members: Collection[Consumer]) -> tuple[int, list[SlotHolder]]:
    """Return the number of jobs of these consumers in flight, and a few that were claimed first."""
    using = settings().DATABASE
    paths = {member.pk: member.path for member in members}
    leases = list(Lease.objects.using(using).filter(consumer_id__in=paths).order_by("claimed_at"))
    by_job = {job_id: lease for lease in leases for job_id in lease.job_ids}
    rows = Job.objects.using(using).filter(pk__in=by_job, state=State.INFLIGHT)
    held = [
        (by_job[id], id)
        for id, token in rows.values_list("pk", "lease_token")
        if token == by_job[id].lease_token
    ]
    first = sorted(held, key=lambda each: (each[0].claimed_at, each[1]))[:SHOWN]
    return len(held), _describe_holders(first, paths)


def _describe_holders(
    first: Sequence[tuple[Lease, int]], paths: Mapping[int, str]
) -> list[SlotHolder]:
    """Return jobs in flight, given as pairs of lease and job id, with the names of their nodes."""
    using = settings().DATABASE
    nodes = Node.objects.using(using).filter(pk__in={lease.node_id for lease, _id in first})
    names = {node.pk: node.name for node in nodes}
    return [
        SlotHolder(
            ids.encode(id),
            paths[lease.consumer_id],
            None if lease.node_id is None else names.get(lease.node_id),
            lease.leased_until,
        )
        for lease, id in first
    ]


def _rate(
    job: Job, row: FlowLimits, level: BucketLevel, cost_before: float
) -> Iterator[WaitReason]:
    needed = cost_before + min(job.cost or 1, level.burst)
    if level.tokens >= needed:
        return
    earliest = level.time_of(needed)
    named = times.format_milliseconds(earliest)
    window = "" if level.window_seconds is None else " in fixed windows"
    yield WaitReason(
        "rate_limited",
        f"The rate of {_describe(row)} is {row.rate}{window}: {max(level.tokens, 0):.2f} of "
        f"{level.burst:g} tokens are left, and it needs {needed:g} with the jobs before it, so it "
        f"is claimed at {named} at the earliest.",
        earliest,
        {**_name(row), "rate": row.rate, **_describe_level(level), "needed": needed},
    )


def _describe_level(level: BucketLevel) -> dict[str, float | None]:
    return {
        "tokens": round(level.tokens, 3),
        "burst": level.burst,
        "window_seconds": level.window_seconds,
    }


def _describe(row: FlowLimits) -> str:
    return f"its limit group {row.name}" if isinstance(row, LimitGroup) else "its consumer"


def _name(row: FlowLimits) -> dict[str, str]:
    if isinstance(row, LimitGroup):
        return {"of": "group", "name": row.name}
    return {"of": "consumer", "name": str(row)}


def find_of_key(job: Job, consumer: Consumer) -> Iterator[WaitReason]:
    """Yield a reason for each limit per key that holds the job back."""
    if not consumer.takes_turns:
        return
    key, using = job.turn_key or "", settings().DATABASE
    turn = turns.read_turn(using, consumer.pk, key, job.cost or 1)
    if turn.throttle_seconds is not None:
        limit: dict[str, Any] = {"of": "key", "key": key}
        yield _until("key_throttled", "Its key is throttled", turn, turn.throttle_seconds, limit)
    if turn.is_full:
        holders = list(map(ids.encode, turn.holder_ids))
        text = f"Jobs of its key in flight: {len(holders)}, the max_in_flight_per_key"
        limit = {"of": "key", "key": key, "max_in_flight_per_key": turn.slots, "holders": holders}
        yield WaitReason("key_full", f"{text}: {', '.join(holders[:SHOWN])}.", limit=limit)
    before = turns.count_before(using, consumer.pk, job.pk, turn.burst)
    if before is not None and job.available_at is not None and job.available_at <= turn.now:
        yield from _key_rate(job, consumer, turn, before.key_cost)


def _key_rate(
    job: Job, consumer: Consumer, turn: KeyTurn, cost_before: float
) -> Iterator[WaitReason]:
    """Yield a reason if the key's token bucket lacks tokens for the job and those before it."""
    needed = cost_before + min(job.cost or 1, turn.burst)
    if not (seconds := turn.seconds_to(needed)):
        return
    text = (
        f"The rate of each key is {consumer.rate}: {max(turn.tokens, 0):.2f} of {turn.burst:g} "
        f"tokens of its key are left, and it needs {needed:g} with the jobs before it"
    )
    level = {"tokens": round(turn.tokens, 3), "burst": turn.burst, "needed": needed}
    limit = {"of": "key", "key": job.turn_key or "", "rate": consumer.rate, **level}
    yield _until("key_rate_limited", text, turn, seconds, limit)


def _until(
    code: str, text: str, turn: KeyTurn, seconds: float, limit: Mapping[str, Any]
) -> WaitReason:
    earliest = turn.now + timedelta(seconds=seconds)
    named = f"{text}: not claimed before {times.format_milliseconds(earliest)}."
    return WaitReason(code, named, earliest, limit)
