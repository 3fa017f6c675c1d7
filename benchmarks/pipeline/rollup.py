"""Rollup, compared with a bare read of the same files and the same group by."""

import time
from contextlib import nullcontext
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from pulljobs.lake.rollups.running import roll_up
from pulljobs.lake.spark import tables
from pulljobs.lake.spark.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS: Final = "(unix_micros({until}) - unix_micros({since})) / 1e6D"
WAIT: Final = SECONDS.format(since="created_at", until="claimed_at")
TOTAL: Final = SECONDS.format(since="created_at", until="settled_at")
COUNTED: Final = """
SELECT
    consumer_id,
    date_trunc('hour', settled_at),
    count_if(state = 'DELIVERED'),
    count_if(state = 'DEAD'),
    sum(retry_count),
    sum(deliveries - 1),
    min(settled_at),
    max(settled_at),
    sum(run_seconds),
    {percentiles}
FROM {{archive}}
GROUP BY ALL
"""
NONE: Final = COUNTED.format(percentiles="max(job_id)")
PERCENTILES: Final = COUNTED.format(
    percentiles=", ".join(
        f"percentile_approx({measure}, array(0.5, 0.95, 0.99))"
        for measure in (WAIT, "run_seconds", TOTAL)
    )
)


class RollupTimes(NamedTuple):
    """Median seconds of the rounds."""

    ours: float
    bare: float
    """Counts and percentiles by Spark's own functions."""
    counts: float
    """Counts without percentiles by Spark's own functions."""
    of_bare: float
    """Median ratio of the rollup's time to the bare time in a round."""


def measure(spark: "SparkSession", rounds: int) -> RollupTimes:
    """Measure the rollup and both bare queries alternately: other load affects all alike."""
    times = [(_ours(spark), _bare(spark, PERCENTILES), _bare(spark, NONE)) for _ in range(rounds)]
    ours, bare, counts = map(median, zip(*times, strict=True))
    return RollupTimes(ours, bare, counts, median(ours / bare for ours, bare, _counts in times))


def _ours(spark: "SparkSession") -> float:
    return roll_up(lambda **_hints: nullcontext(spark), recount=True).seconds


def _bare(spark: "SparkSession", text: str) -> float:
    archive = Table(tables.location(), "archive").frame(spark)
    started = time.monotonic()
    spark.sql(text, archive=archive).collect()
    return time.monotonic() - started
