"""Why one job is not being claimed."""

from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any, Final, NamedTuple

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.diagnosis import serving, times
from pulljobs.errors import ConfigurationError
from pulljobs.models import Consumer, ExclusiveKey, Job, Lease, Node
from pulljobs.states import State
from pulljobs.storage import jobs, nodes

LOOKED_THROUGH: Final = 10_000
"""Entries of the index, to find where a job stands."""


class Position(NamedTuple):
    """How many of its consumer come before a job."""

    before: int
    is_least: bool
    """There may be more: the job itself was not reached."""

    @property
    def text(self) -> str:
        more = " or more" if self.is_least else ""
        return f"{self.before:,}{more} jobs of its consumer come before it."


class Reason(NamedTuple):
    code: str
    text: str


def job_id(text: str) -> int:
    """Of a number, or of the form that the API shows."""
    try:
        return ids.number_of(text)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def stray(job_id: int, consumer_id: int) -> Reason:
    """Of a job whose consumer's row is gone, which SQL alone can do."""
    return Reason(
        "no_consumer",
        f"The row of its consumer, number {consumer_id}, is gone, so nobody can do it: restore "
        f"that row, or end the job by pulljobs.operating.kill([{job_id}], by=...).",
    )


def reasons(job: Job) -> list[Reason]:
    """All that stands in the way of a QUEUED job, or where it is instead; at least one."""
    if job.state != State.QUEUED:
        return [_in_flight(job) if job.state == State.INFLIGHT else _dead(job)]
    found = [reason for check in CHECKS for reason in check(job, job.consumer)]
    return found or [Reason("next", "Nothing stands in its way: the next claim may take it.")]


def position(job: Job) -> Position | None:
    """None: it can't be claimed."""
    if job.state != State.QUEUED or job.available_at is None:
        return None
    rows = _rows(Job).filter(consumer_id=job.consumer_id, priority__gte=job.priority)
    # In the order of the index, which has what is taken, dead or due later as well.
    order = rows.order_by("-priority", "available_at", "id")
    head = list(order.values_list("id", "state", "available_at")[:LOOKED_THROUGH])
    before = takewhile(lambda one: one[0] != job.pk, head)
    now = nodes.clock(settings().DATABASE)
    count = sum(state == State.QUEUED and at is not None and at <= now for _, state, at in before)
    return Position(count, is_least=job.pk not in {id for id, *_ in head})


def _in_flight(job: Job) -> Reason:
    lease = _rows(Lease).filter(lease_token=job.lease_token, job_ids__contains=[job.pk]).first()
    if lease is None:
        return Reason("in_flight", "It is in flight, and was settled while this was asked.")
    node = _rows(Node).filter(pk=lease.node_id).first() if lease.node_id else None
    holder = f"node {node.name}" if node else f"a caller of the {lease.via} door"
    over = lease.leased_until <= nodes.clock(settings().DATABASE)
    end = "which is over: the reaper gives it back" if over else "and may renew it"
    return Reason(
        "in_flight",
        f"It is held by {holder} under a lease until {times.told(lease.leased_until)}, {end}.",
    )


def _dead(job: Job) -> Reason:
    error = (job.error or "").partition("\n")[0]
    return Reason("dead", f"It is DEAD ({job.reason}: {error}); redrive it to try again.")


def _due_later(job: Job, consumer: Consumer) -> Iterator[Reason]:
    if job.available_at is None or job.available_at <= nodes.clock(settings().DATABASE):
        return
    why = f"retry {job.retry_count} is due" if job.retry_count else "it is due"
    yield Reason("not_due", f"It waits for its time: {why} at {times.told(job.available_at)}.")


def _consumer_is_off(job: Job, consumer: Consumer) -> Iterator[Reason]:
    if consumer.deleted_at is not None:
        yield Reason("deleted", f"Consumer {consumer.name} is deleted: restore it.")
    for who, row in (("consumer", consumer), ("channel", consumer.channel)):
        if row.paused_until and row.paused_until > nodes.clock(settings().DATABASE):
            yield Reason("paused", f"Its {who} is paused until {times.told(row.paused_until)}.")


def _no_room(job: Job, consumer: Consumer) -> Iterator[Reason]:
    if consumer.max_in_flight is None:
        return
    count = jobs.stats(settings().DATABASE, consumer.pk, consumer.max_in_flight).in_flight
    if count >= consumer.max_in_flight:
        yield Reason("max_in_flight", f"{count} jobs are in flight, as many as max_in_flight lets.")


def _key_is_busy(job: Job, consumer: Consumer) -> Iterator[Reason]:
    if not consumer.exclusive_keys or job.key is None:
        return
    row = _rows(ExclusiveKey).filter(consumer_id=consumer.pk, key=job.key).first()
    holder = _rows(Job).filter(pk=row.holder).first() if row and row.holder else None
    if holder is not None and holder.pk != job.pk and holder.state != State.DEAD:
        yield Reason(
            "key_busy", f"Its key is held by job {ids.encode(holder.pk)}, which is {holder.state}."
        )
    elif job.available_at is None:
        yield Reason("parked", "It waits behind its key, which is free: the sweep lets it go soon.")


def _held_back(job: Job, consumer: Consumer) -> Iterator[Reason]:
    living = serving.living()
    place = f"{consumer.channel.name}/{consumer.name}"
    for name, circuit in serving.circuits(living, place).items():
        text = f"Node {name} claims none of {place} for {circuit['seconds']} s: its jobs fail."
        yield Reason("circuit_open", text)
    if not serving.is_served(consumer, living):
        yield Reason("no_worker", f"Nobody serves {place}: start a worker, or pull over HTTP.")


CHECKS: Final[tuple[Callable[[Job, Consumer], Iterator[Reason]], ...]] = (
    _due_later,
    _consumer_is_off,
    _no_room,
    _key_is_busy,
    _held_back,
)


def _rows(model: type[Any]) -> Any:
    return model.objects.using(settings().DATABASE)
