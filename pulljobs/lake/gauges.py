"""Gauge of the metrics page about the lake, read from the database."""

from collections.abc import Iterator
from typing import Final

from pulljobs.conf import settings
from pulljobs.lake import ledger
from pulljobs.lake.locations import normalize_location
from pulljobs.metrics.families import Family, Sample, Type

FAMILIES: Final = (
    Family(
        "pulljobs_lake_lag_seconds",
        Type.GAUGE,
        (),
        "Age of the oldest settlement that is not in the lake; only where there is a lake.",
    ),
)


def read_samples(using: str) -> Iterator[Sample]:
    """Yield the lag of the export in seconds, or nothing if PULLJOBS['LAKE'] is not set."""
    if location := normalize_location(settings().LAKE):
        lag = ledger.measure_lag(using, location)
        yield "pulljobs_lake_lag_seconds", (), lag.total_seconds()
