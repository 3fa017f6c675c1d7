"""Gauges of schedules: metrics that each scrape reads from the database."""

from collections.abc import Iterator
from typing import Final

from pulljobs.metrics.families import Family, Sample, Type
from pulljobs.schedules.loop import read_wait

FAMILIES: Final = (
    Family(
        "pulljobs_schedule_late_seconds",
        Type.GAUGE,
        (),
        "Time since the schedule that is due longest was due; 0: none is due.",
    ),
)


def read_samples(using: str) -> Iterator[Sample]:
    """Yield the seconds by which the longest due schedule is late, 0 if no schedule is due."""
    yield "pulljobs_schedule_late_seconds", (), max(0.0, -(read_wait() or 0.0))
