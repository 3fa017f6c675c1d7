"""The export, beside ADBC alone: the same rows by the same statements, in turns."""

from contextlib import nullcontext
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from django.conf import settings
from django.test.utils import override_settings

from benchmarks.pipeline import adbc
from pulljobs.lake.spark import exporting, session
from pulljobs.lake.spark.exporting import Choice

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

    from pyspark.sql import SparkSession


class Brought(NamedTuple):
    """Medians of the rounds: seconds, and of each round how many times the other's rate ours is."""

    rows: int
    adbc: float
    ours: float
    ratio: float


def measure(spark: "SparkSession", rows: int, tasks: int, rounds: int) -> Brought:
    """Every export but the last goes to a lake of its own; the last one's is the project's."""
    lakes = [TemporaryDirectory() for _ in range(rounds - 1)]
    places = [*(f"{one.name}/lake" for one in lakes), settings.PULLJOBS["LAKE"]]
    with adbc.reading(tasks) as pool:
        found = [(_alone(pool, rows, tasks), _ours(spark, rows, place)) for place in places]
    for one in lakes:
        one.cleanup()
    theirs, ours = map(median, zip(*found, strict=True))
    return Brought(rows, theirs, ours, median(adbc / ours for adbc, ours in found))


def _alone(pool: "ProcessPoolExecutor", rows: int, tasks: int) -> float:
    count, seconds = adbc.read_seconds(pool, session.dsn(), tasks)
    assert count == rows
    return seconds


def _ours(spark: "SparkSession", rows: int, place: str) -> float:
    with override_settings(PULLJOBS={**settings.PULLJOBS, "LAKE": place}):
        done = exporting.export(Choice(), lambda: nullcontext(spark), always_spark=True)
    assert sum(done.rows.values()) == rows
    return done.seconds
