"""Metrics of runs that are read from the database."""

from collections.abc import Iterator
from typing import Final

from pulljobs.metrics.families import Family, Sample, Type
from pulljobs.storage.statements import run

MOST: Final = 10_000
FAMILIES: Final = (
    Family(
        "pulljobs_runs_waiting",
        Type.GAUGE,
        ("signal",),
        "Runs that wait for a signal, by its name. Together they are at most 10,000.",
    ),
)


def read_samples(using: str) -> Iterator[Sample]:
    """Yield the number of waiting runs for each signal."""
    for row in run(using, "waiting_runs", {"most": MOST}):
        yield "pulljobs_runs_waiting", (row.name,), row.runs
