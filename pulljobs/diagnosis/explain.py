"""Reasons for which a job is not claimed, for `pulljobs explain` and the admin."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import takewhile
from math import inf
from typing import Any, Final

from pulljobs import hooks, ids
from pulljobs.conf import settings
from pulljobs.diagnosis import key_reasons, limit_reasons, serving, times
from pulljobs.diagnosis.wait_reasons import QueuePosition, WaitReason
from pulljobs.engine.circuit import LONGEST_NAME, task_of
from pulljobs.errors import ConfigurationError
from pulljobs.models import Attempt, Consumer, ExclusiveKey, Job, Lease, Message, Node
from pulljobs.states import Event, State
from pulljobs.storage import nodes, turns

LOOKED_THROUGH: Final = 10_000
"""Index entries that are read to find the position of a job."""


def parse_job_id(text: str) -> int:
    """Return the job id of a decimal number or a public form, or raise ConfigurationError."""
    try:
        return ids.number_of(text)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def describe_stray(job_id: int, consumer_id: int) -> WaitReason:
    """Return the reason that a job can never run, because SQL deleted the row of its consumer."""
    return WaitReason(
        "no_consumer",
        f"The row of its consumer, number {consumer_id}, is gone, so it can never run: "
        f"restore that row, or kill the job with pulljobs.operating.kill([{job_id}], by=...).",
    )


def reasons(job: Job) -> list[WaitReason]:
    """Return why a job is not claimed, or the reason "next" if nothing keeps it. Never empty."""
    if job.state != State.QUEUED:
        return [_in_flight(job) if job.state == State.INFLIGHT else _dead(job)]
    obstacles = [reason for check in CHECKS for reason in check(job, job.consumer)]
    return obstacles or [WaitReason("next", "Nothing keeps it: the next claim may take it.")]


def position(job: Job, burst: float = inf) -> QueuePosition | None:
    """Return how many jobs claims take before a job, or None if it is blocked or not QUEUED.

    The result also has the sum of their costs, each counted as at most `burst` tokens.
    """
    if job.state != State.QUEUED or job.available_at is None:
        return None
    if job.consumer.takes_turns:
        counted = turns.count_before(settings().DATABASE, job.consumer_id, job.pk, burst)
        if counted is None:
            return None
        return QueuePosition(counted.jobs, counted.is_least, counted.cost)
    rows = _rows(Job).filter(consumer_id=job.consumer_id, priority__gte=job.priority)
    # The order of the index, which also has jobs that are in flight, dead or due later.
    order = rows.order_by("-priority", "available_at", "id")
    head = list(order.values_list("id", "state", "available_at", "cost")[:LOOKED_THROUGH])
    before = takewhile(lambda entry: entry[0] != job.pk, head)
    now = nodes.clock(settings().DATABASE)
    costs = [
        min(cost or 1, burst)
        for _, state, at, cost in before
        if state == State.QUEUED and at is not None and at <= now
    ]
    is_least = job.pk not in {id for id, *_ in head}
    return QueuePosition(len(costs), is_least, sum(costs))


def earliest(reasons: Iterable[WaitReason]) -> datetime | None:
    """Return the time before which these reasons rule out a claim, or None if it is unknown."""
    return max((each.earliest for each in reasons if each.earliest is not None), default=None)


def _in_flight(job: Job) -> WaitReason:
    lease = _rows(Lease).filter(lease_token=job.lease_token, job_ids__contains=[job.pk]).first()
    if lease is None:
        return WaitReason("in_flight", "It was in flight, and was settled during this look-up.")
    node = _rows(Node).filter(pk=lease.node_id).first() if lease.node_id else None
    holder = f"node {node.name}" if node else f"a holder that claimed it via {lease.via}"
    over = lease.leased_until <= nodes.clock(settings().DATABASE)
    end = "which has expired: the reaper gives the job back" if over else "which may be renewed"
    return WaitReason(
        "in_flight",
        f"It is held by {holder} under a lease until "
        f"{times.format_time(lease.leased_until)}, {end}.",
    )


def _dead(job: Job) -> WaitReason:
    error = (job.error or "").partition("\n")[0]
    return WaitReason("dead", f"It is DEAD ({job.reason}: {error}); redrive it to run it again.")


def _due_later(job: Job, consumer: Consumer) -> Iterator[WaitReason]:
    if job.available_at is None or job.available_at <= nodes.clock(settings().DATABASE):
        return
    special = [reason for name in hooks.explainers for reason in hooks.load(name)(job)]
    if special:
        yield from special
        return
    why = f"retry {job.retry_count} is due" if _is_retried(job) else "it is due"
    yield WaitReason(
        "not_due",
        f"It waits for its time: {why} at {times.format_time(job.available_at)}.",
        job.available_at,
    )


def _is_retried(job: Job) -> bool:
    """Return True if the job waits because of a retry, and not because of a later release."""
    last = _rows(Attempt).filter(job_id=job.pk).order_by("-id").values_list("event", flat=True)
    return job.retry_count > 0 and last.first() != Event.RELEASE


def _consumer_is_off(job: Job, consumer: Consumer) -> Iterator[WaitReason]:
    if consumer.deleted_at is not None:
        path = consumer.path
        yield WaitReason("deleted", f"Its consumer {path} is deleted: restore it.")
    for kind, row in (("consumer", consumer), ("channel", consumer.channel)):
        if row.paused_until and row.paused_until > nodes.clock(settings().DATABASE):
            yield WaitReason(
                "paused",
                f"Its {kind} is paused until {times.format_time(row.paused_until)}.",
                row.paused_until,
            )


def _is_throttled(job: Job, consumer: Consumer) -> Iterator[WaitReason]:
    until = consumer.throttled_until
    if until is not None and until > nodes.clock(settings().DATABASE):
        yield WaitReason(
            "throttled",
            "A handler or an endpoint has throttled its consumer: nothing is claimed before "
            f"{times.format_milliseconds(until)}.",
            until,
        )


def _is_limited(job: Job, consumer: Consumer) -> Iterator[WaitReason]:
    yield from limit_reasons.find(job, consumer, lambda burst: position(job, burst))


def _key_is_busy(job: Job, consumer: Consumer) -> Iterator[WaitReason]:
    if not consumer.exclusive_keys or job.key is None:
        return
    row = _rows(ExclusiveKey).filter(consumer_id=consumer.pk, key=job.key).first()
    holder = _rows(Job).filter(pk=row.holder).first() if row and row.holder else None
    if holder is not None and holder.pk != job.pk and holder.state != State.DEAD:
        yield _held_key(holder)
    elif job.available_at is None:
        yield WaitReason(
            "blocked", "It waits behind its key, which is free: the sweep lets it go soon."
        )


def _held_key(holder: Job) -> WaitReason:
    """Return the reason for a job that waits because `holder` occupies its exclusive key."""
    name, due = ids.encode(holder.pk), holder.due_at
    is_later = holder.state == State.QUEUED and due is not None
    until = f" and due at {times.format_milliseconds(due)}" if is_later and due else ""
    return WaitReason(
        "key_busy",
        f"Its key is held by job {name}, which is {holder.state}{until}.",
        due if is_later else None,
        {"of": "key", "key": holder.key, "holders": [name]},
    )


def _held_back(job: Job, consumer: Consumer) -> Iterator[WaitReason]:
    living = serving.living()
    path = consumer.path
    for held in serving.held_back_of(living, path):
        if held.task and held.task != _task_of(job):
            continue
        text = f"Node {held.node} holds {held.subject} back: {held.cause}; {held.prospect}."
        yield WaitReason("circuit_open", text)
    if not serving.is_served(consumer, living):
        yield WaitReason(
            "no_worker", f"No process serves {path}: {serving.advise_to_serve(consumer)}."
        )


CHECKS: Final[tuple[Callable[[Job, Consumer], Iterator[WaitReason]], ...]] = (
    _due_later,
    _consumer_is_off,
    _is_throttled,
    _is_limited,
    _key_is_busy,
    limit_reasons.find_of_key,
    key_reasons.find_place,
    _held_back,
)


def _task_of(job: Job) -> str:
    """Return the Django task of a job, shortened as in node reports, or '' for any other job."""
    message = _rows(Message).filter(pk=job.message_id).first()
    return task_of(bytes(message.payload))[:LONGEST_NAME] if message else ""


def _rows(model: type[Any]) -> Any:
    return model.objects.using(settings().DATABASE)
