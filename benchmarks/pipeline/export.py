"""Export, measured alternately with ADBC alone, by the same statements.

As in production, one process exports few rows and Spark many.
"""

from contextlib import nullcontext
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from django.conf import settings
from django.test.utils import override_settings

from benchmarks.pipeline import adbc
from pulljobs.lake.spark import exporting, session
from pulljobs.lake.spark.exporting import ExportOptions

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

    from pyspark.sql import SparkSession


class ExportTimes(NamedTuple):
    """Median seconds, and the median ratio of the export's rate to that of ADBC in a round."""

    rows: int
    adbc: float
    ours: float
    ratio: float


def measure(spark: "SparkSession", rows: int, tasks: int, rounds: int) -> ExportTimes:
    """Measure the export and ADBC alone alternately.

    The last export goes to the project's lake, the others each to a lake of their own.
    """
    lakes = [TemporaryDirectory() for _ in range(rounds - 1)]
    places = [*(f"{lake.name}/lake" for lake in lakes), settings.PULLJOBS["LAKE"]]
    with adbc.start_readers(tasks) as pool:
        times = [(_adbc(pool, rows, tasks), _export(spark, rows, place)) for place in places]
    for lake in lakes:
        lake.cleanup()
    theirs, ours = map(median, zip(*times, strict=True))
    return ExportTimes(rows, theirs, ours, median(theirs / ours for theirs, ours in times))


def _adbc(pool: "ProcessPoolExecutor", rows: int, tasks: int) -> float:
    count, seconds = adbc.read_seconds(pool, session.dsn(), tasks)
    assert count == rows
    return seconds


def _export(spark: "SparkSession", rows: int, place: str) -> float:
    with override_settings(PULLJOBS={**settings.PULLJOBS, "LAKE": place}):
        done = exporting.export(ExportOptions(), lambda **_hints: nullcontext(spark))
    assert sum(done.rows.values()) == rows
    return done.seconds
