"""How things stand, from the database: at a cost that neither archive nor backlog raise."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, timedelta
from functools import partial
from typing import Final

from django.db import DatabaseError, InterfaceError, connections
from django.db.models import Sum
from django.db.models.functions import Now
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from pulljobs import hooks
from pulljobs.conf import settings
from pulljobs.diagnosis import serving
from pulljobs.metrics.families import Sample, families_read
from pulljobs.models import Lease, Node, PullWaiter
from pulljobs.storage import backlog, blockers, counts, dead, health, nodes, partitions
from pulljobs.storage.backlog import Backlog
from pulljobs.storage.reading import impatient

FRESH: Final = 5.0
"""Seconds for which what was read is told again, whoever asks."""
PATIENCE: Final = timedelta(seconds=1)
"""For one statement."""
WAIT: Final = 3.0
"""Seconds for all of them: counters must not wait for long for gauges."""
KEPT: Final = 90.0
"""Seconds for which what is not read by then is told as it was last: beyond Prometheus's minute."""
ESTIMATED: Final = 200
"""Consumers whose queue is estimated where it can't be counted, as each takes a query."""

KINDS: Final = ("ready", "delayed", "parked", "in_flight")
"""Of live jobs."""


class Gauges:
    """A collector, for all threads of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reading: Reading | None = None
        self._last: Reading | None = None

    def collect(self) -> Iterator[Metric]:
        families = {
            one.name: GaugeMetricFamily(one.name, one.meaning, labels=one.labels)
            for one in families_read()
        }
        for name, labels, value in self._current():
            families[name].add_metric(labels, value)
        yield from families.values()

    def forget(self) -> None:
        """Read anew when asked next."""
        self._reading = None

    def _current(self) -> Sequence[Sample]:
        with self._lock:
            if self._reading is None or self._reading.is_old():
                self._last, self._reading = self._reading, Reading()
                self._reading.start()
            reading, last = self._reading, self._last
        reading.join(WAIT)
        return reading.samples(last)


class Reading(threading.Thread):
    """One look at the database, aside, for it may take as long as a host that is gone lets it."""

    def __init__(self) -> None:
        super().__init__(name="gauges", daemon=True)
        self._parts: dict[str, list[Sample]] = {}
        self._began = time.monotonic()
        self._ended: float | None = None

    def run(self) -> None:
        try:
            self.read()
        finally:
            connections.close_all()

    def read(self) -> None:
        try:
            for name, samples in _parts():
                self._parts[name] = samples
        finally:
            self._ended = time.monotonic()

    def is_old(self) -> bool:
        return not self.is_alive() and not self.ended_within(FRESH)

    def ended_within(self, seconds: float) -> bool:
        return self._ended is not None and time.monotonic() - self._ended <= seconds

    def samples(self, last: "Reading | None" = None) -> list[Sample]:
        """Of the parts that were read by now; of the others, that they were not.

        While it goes on, the last one's parts stand for those that are still to come: else what
        regularly comes too late for whoever asks would never be told.
        """
        goes_on = self._ended is None
        parts = dict(self._parts)
        if goes_on and last and last.ended_within(KEPT):
            parts = last._parts | parts
        told = [one for samples in parts.values() for one in samples]
        told += [("pulljobs_read_ok", (name,), name in parts) for name in find_parts()]
        seconds = (self._ended or time.monotonic()) - self._began
        return [*told, ("pulljobs_read_seconds", (), seconds)]


def _parts() -> Iterator[tuple[str, list[Sample]]]:
    """Those that can be read, each in time."""
    using = settings().DATABASE
    try:
        with impatient(using, PATIENCE) as reading:
            for name, read in find_parts().items():
                samples = reading.part(name, partial(_samples, read, using), None)
                if samples is not None:
                    yield name, samples
    except (DatabaseError, InterfaceError):
        return


def _samples(read: Callable[[str], Iterator[Sample]], using: str) -> list[Sample]:
    return list(read(using))


def _consumers(using: str) -> Iterator[Sample]:
    rows = {row.pk: row for row in counts.consumers(using)}
    now, estimates = nodes.clock(using), ESTIMATED
    for found in _backlogs(using, list(rows)):
        row = rows[found.consumer_id]
        place = (row.channel.name, row.name)
        ready_at = found.oldest_ready_at or now
        pauses = [one for one in (row.paused_until, row.channel.paused_until) if one]
        estimate = backlog.estimate(using, found) if estimates else None
        estimates -= estimate is not None
        yield "queued_job_count", place, found.queued if estimate is None else estimate
        for kind in KINDS:
            yield "pulljobs_jobs", (*place, kind), getattr(found, kind)
        yield "pulljobs_oldest_ready_seconds", place, max(0.0, (now - ready_at).total_seconds())
        yield "pulljobs_paused", place, any(one > now for one in pauses)


def _backlogs(using: str, consumer_ids: Sequence[int]) -> list[Backlog]:
    """The more at once, the lower is the cap: those that reach it are counted once more, alone."""
    found = {one.consumer_id: one for one in backlog.backlogs(using, consumer_ids)}
    capped = [id for id, one in found.items() if any(map(one.is_least, KINDS))]
    if len(capped) < len(found):
        found |= {one.consumer_id: one for one in backlog.backlogs(using, capped)}
    return list(found.values())


def _dead(using: str) -> Iterator[Sample]:
    """Apart from the others: an alert asks for more than their cap, where consumers are many."""
    rows = {row.pk: row for row in counts.consumers(using)}
    for id, count in dead.counts(using, list(rows)).items():
        yield "dead_job_count", (rows[id].channel.name, rows[id].name), count


def _workers(using: str) -> Iterator[Sample]:
    alive, silent = serving.living(), serving.gone()
    for kind in Node.Kind.values:
        for state, some in (("alive", alive), ("silent", silent)):
            yield "pulljobs_nodes", (kind, state), sum(one.kind == kind for one in some)
    said = Counter(place for one in alive for place in one.report.get("serves", ()))
    levels, waiting, holding = _levels(alive), _waiting(using), _holding(using)
    for row in counts.consumers(using):
        place = f"{row.channel.name}/{row.name}"
        labels = (row.channel.name, row.name)
        serves = said[place] + waiting.get(row.pk, 0) + (row.pk in holding)
        yield "pulljobs_serving", labels, serves
        yield "pulljobs_circuit_level", labels, levels.get(place, 0)


def _levels(alive: Sequence[Node]) -> Mapping[str, int]:
    """The highest of each circuit, by the place."""
    levels: dict[str, int] = {}
    for one in alive:
        for place, circuit in one.report.get("circuits", {}).items():
            levels[place] = max(circuit["level"], levels.get(place, 0))
    return levels


def _waiting(using: str) -> Mapping[int, int]:
    """Pulls over HTTP; a worker that waits has said already whom it serves."""
    apis = Node.objects.using(using).filter(kind=Node.Kind.API).values("id")
    rows = PullWaiter.objects.using(using).filter(waiting_until__gt=Now(), node_id__in=apis)
    return dict(rows.values_list("consumer_id").annotate(Sum("waiting")).order_by())


def _holding(using: str) -> Collection[int]:
    """Consumers of which somebody holds jobs who need not say that it serves them.

    What a worker holds it may hold after its death, and while it lives it says so.
    """
    rows = Lease.objects.using(using).filter(leased_until__gt=Now())
    others = rows.exclude(via__in=(Lease.Via.WORKER, Lease.Via.PUSH))
    return set(others.values_list("consumer_id", flat=True).distinct())


def _snapshots(using: str) -> Iterator[Sample]:
    ages = [pin.seconds for pin in blockers.pins(using, timedelta(0)) if pin.seconds is not None]
    yield "pulljobs_oldest_snapshot_seconds", (), max(ages, default=0.0)


def _partitions(using: str) -> Iterator[Sample]:
    in_default, today = blockers.in_default(using), nodes.clock(using).astimezone(UTC).date()
    for table in partitions.PARTITIONED:
        yield "pulljobs_default_partition_rows", (table,), in_default.get(table, 0)
        there = {one.day for one in partitions.existing(using, table)}
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
    """Return what reads each part of the gauges, the parts of `hooks.gauges` last."""
    added = {name: hooks.load(module).read_samples for name, module in hooks.gauges.items()}
    return {**PARTS, **added}
