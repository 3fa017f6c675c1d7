"""Samples of the gauges, in parts such as that of workers, each of which may fail alone."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, timedelta
from typing import Final

from django.db.models import Sum
from django.db.models.functions import Now

from pulljobs import hooks
from pulljobs.diagnosis import serving
from pulljobs.metrics.families import Sample
from pulljobs.models import Lease, Node, PullWaiter
from pulljobs.storage import backlog, counts, dead, health, nodes, partitions, snapshots
from pulljobs.storage.backlog import Backlog

ESTIMATED: Final = 200
"""Largest number of consumers whose queue is estimated, as each estimate is a query."""
KINDS: Final = ("ready", "delayed", "blocked", "in_flight")
"""Groups of live jobs that gauges count, as values of a label."""


def _consumers(using: str) -> Iterator[Sample]:
    rows = {row.pk: row for row in counts.consumers(using)}
    now, estimates = nodes.clock(using), ESTIMATED
    for counted in _backlogs(using, list(rows)):
        row = rows[counted.consumer_id]
        labels = (row.channel.name, row.name)
        ready_at = counted.oldest_ready_at or now
        pauses = [until for until in (row.paused_until, row.channel.paused_until) if until]
        estimate = backlog.estimate(using, counted) if estimates else None
        if estimate is not None:
            estimates -= 1
        yield "queued_job_count", labels, counted.queued if estimate is None else estimate
        for kind in KINDS:
            yield "pulljobs_jobs", (*labels, kind), getattr(counted, kind)
        yield "pulljobs_oldest_ready_seconds", labels, max(0.0, (now - ready_at).total_seconds())
        yield "pulljobs_paused", labels, any(until > now for until in pauses)


def _backlogs(using: str, consumer_ids: Sequence[int]) -> list[Backlog]:
    """Count the ready, delayed, blocked and running jobs of consumers, each number up to a cap.

    The more consumers one statement counts, the lower the cap. So those that reach it are counted
    once more, without the others.
    """
    counted = {row.consumer_id: row for row in backlog.backlogs(using, consumer_ids)}
    capped = [id for id, row in counted.items() if any(map(row.is_least, KINDS))]
    if len(capped) < len(counted):
        counted |= {row.consumer_id: row for row in backlog.backlogs(using, capped)}
    return list(counted.values())


def _dead(using: str) -> Iterator[Sample]:
    """Yield the number of dead jobs of each consumer, counted up to a fixed cap."""
    rows = {row.pk: row for row in counts.consumers(using)}
    for id, count in dead.counts(using, list(rows)).items():
        yield "dead_job_count", (rows[id].channel.name, rows[id].name), count


def _workers(using: str) -> Iterator[Sample]:
    alive, silent = serving.living(), serving.gone()
    for kind in Node.Kind.values:
        for state, known in (("alive", alive), ("silent", silent)):
            yield "pulljobs_nodes", (kind, state), sum(node.kind == kind for node in known)
    served = Counter(path for node in alive for path in node.report.get("serves", ()))
    levels, waiting, holding = _levels(alive), _waiting(using), _holding(using)
    for row in counts.consumers(using):
        path = row.path
        labels = (row.channel.name, row.name)
        serves = served[path] + waiting.get(row.pk, 0) + (row.pk in holding)
        yield "pulljobs_serving", labels, serves
        yield "pulljobs_circuit_level", labels, levels.get(path, 0)


def _levels(alive: Sequence[Node]) -> Mapping[str, int]:
    """Return the highest level of each consumer's circuit in all workers, by `channel/consumer`."""
    levels: dict[str, int] = {}
    for node in alive:
        for path, circuit in node.report.get("circuits", {}).items():
            levels[path] = max(circuit["level"], levels.get(path, 0))
    return levels


def _waiting(using: str) -> Mapping[int, int]:
    """Count the long polls that wait for jobs, by consumer id.

    Rows of workers are left out, because workers report the consumers that they serve, and so are
    rows of Spark's streams.
    """
    apis = Node.objects.using(using).filter(kind=Node.Kind.API).values("id")
    rows = PullWaiter.objects.using(using).filter(waiting_until__gt=Now(), node_id__in=apis)
    return dict(rows.values_list("consumer_id").annotate(Sum("waiting")).order_by())


def _holding(using: str) -> Collection[int]:
    """Return the ids of consumers whose jobs are leased to HTTP clients or to Spark.

    Leases of workers do not count: workers report what they serve, and a lease may outlive its
    worker.
    """
    rows = Lease.objects.using(using).filter(leased_until__gt=Now())
    others = rows.exclude(via__in=(Lease.Via.WORKER, Lease.Via.PUSH))
    return set(others.values_list("consumer_id", flat=True).distinct())


def _snapshots(using: str) -> Iterator[Sample]:
    old = snapshots.find_old(using, timedelta(0))
    ages = [each.seconds for each in old if each.seconds is not None]
    yield "pulljobs_oldest_snapshot_seconds", (), max(ages, default=0.0)


def _partitions(using: str) -> Iterator[Sample]:
    in_default = partitions.count_in_default(using)
    today = nodes.clock(using).astimezone(UTC).date()
    for table in partitions.PARTITIONED:
        yield "pulljobs_default_partition_rows", (table,), in_default.get(table, 0)
        there = {partition.day for partition in partitions.existing(using, table)}
        ahead = -1
        while today + timedelta(days=ahead + 1) in there:
            ahead += 1
        yield "pulljobs_partitions_ahead", (table,), ahead


def _tables(using: str) -> Iterator[Sample]:
    for table in health.tables(using):
        yield "pulljobs_table_rows", (table.name, "live"), table.live_rows
        yield "pulljobs_table_rows", (table.name, "dead"), table.dead_rows
        yield "pulljobs_table_bytes", (table.name,), table.bytes


PARTS: Final[Mapping[str, Callable[[str], Iterator[Sample]]]] = {
    "consumers": _consumers,
    "dead": _dead,
    "workers": _workers,
    "snapshots": _snapshots,
    "partitions": _partitions,
    "tables": _tables,
}


def find_parts() -> dict[str, Callable[[str], Iterator[Sample]]]:
    """Return functions that each read a part of the gauges, by its name, such as "workers".

    Parts that other apps add in `hooks.gauges` come last.
    """
    added = {name: hooks.load(module).read_samples for name, module in hooks.gauges.items()}
    return {**PARTS, **added}
