"""Metrics of runs that are read from the database."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from pulljobs.metrics.families import CONSUMER, Family, Sample, Type
from pulljobs.storage.statements import run
from pulljobs.workflows import versions

MOST: Final = 10_000
KINDS: Final = ("ready", "in_flight", "sleep", "signal", "children", "version", "retry", "dead")
"""Groups of runs in the metric: the states, with queued runs divided by what they wait for."""
FAMILIES: Final = (
    Family(
        "pulljobs_runs_waiting",
        Type.GAUGE,
        ("signal",),
        "Runs that wait for a signal, by its name. Together they are at most 10,000.",
    ),
    Family(
        "pulljobs_runs",
        Type.GAUGE,
        (*CONSUMER, "state"),
        "Runs that have begun and are not delivered, by `state`: `ready`, `in_flight`, `dead`, or "
        "what they wait for: `sleep`, `signal`, `children`, `version` (a worker that accepts it), "
        "`retry`. About 10,000 jobs are read.",
    ),
    Family(
        "pulljobs_runs_stranded",
        Type.GAUGE,
        CONSUMER,
        "Queued runs of versions that no living worker of their consumer accepts.",
    ),
    Family(
        "pulljobs_run_overdue_seconds",
        Type.GAUGE,
        CONSUMER,
        "Time since the sleep, wait or retry of a run was over that no worker has claimed since.",
    ),
)


def read_samples(using: str) -> Iterator[Sample]:
    """Yield numbers of runs by signal and by consumer, and how late the runs of a consumer are."""
    for row in run(using, "waiting_runs", {"most": MOST}):
        yield "pulljobs_runs_waiting", (row.name,), row.runs
    yield from _read_consumers(using)


def _read_consumers(using: str) -> Iterator[Sample]:
    consumers = versions.find_consumers(using)
    counted = versions.count_live(using, list(consumers))
    stranded: Counter[int] = Counter()
    for each in versions.find_stranded(consumers, counted):
        stranded[each.consumer.pk] += each.runs
    for id, consumer in consumers.items():
        labels = (consumer.channel.name, consumer.name)
        rows = [row for row in counted if row.consumer_id == id]
        for kind in KINDS:
            runs = sum(row.runs for row in rows if row.kind == kind)
            yield "pulljobs_runs", (*labels, kind), runs
        yield "pulljobs_runs_stranded", labels, stranded[id]
        late = max((row.overdue_seconds or 0.0 for row in rows), default=0.0)
        yield "pulljobs_run_overdue_seconds", labels, late
