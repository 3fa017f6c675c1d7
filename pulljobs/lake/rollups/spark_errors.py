"""Counts of the errors of dead jobs by Spark. `arrow_errors` has the same counts."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pulljobs.lake.rollups.counts import KEPT_ERRORS, Counts, Error, Key, Rows
from pulljobs.lake.rollups.errors import LONGEST_SAMPLE, LONGEST_SHAPE, SHAPES
from pulljobs.lake.rollups.hours import hour_at
from pulljobs.lake.spark.frame_rows import each

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

ERRORS: Final = f"""
SELECT *
FROM (
    SELECT
        *,
        row_number() OVER (PARTITION BY consumer_id, hour ORDER BY jobs DESC, fingerprint) AS place,
        row_number() OVER (
            PARTITION BY consumer_id, hour, reason ORDER BY jobs DESC, fingerprint
        ) AS place_in_reason,
        sum(jobs) OVER (PARTITION BY consumer_id, hour, reason) AS of_reason
    FROM (
        SELECT
            consumer_id,
            unix_seconds(settled_at) div 3600 AS hour,
            reason,
            md5(shape) AS fingerprint,
            count(*) AS jobs,
            min_by(left(error, {LONGEST_SAMPLE}), id) AS sample,
            min_by(job_id, id) AS sample_job
        FROM {{dead}}
        GROUP BY ALL
    )
)
WHERE place <= {KEPT_ERRORS} OR place_in_reason = 1
"""


def add(shapes: "Iterable[Row]", rows: Rows) -> None:
    """Add numbers of errors, as `count_shapes` returns them, to the counts of each consumer."""
    for row in shapes:
        _take(rows[Key(row.consumer_id, hour_at(row.hour))], row)


def count_shapes(spark: "SparkSession", archive: "DataFrame") -> "list[Row]":
    """Count the errors of dead jobs by consumer, hour and shape.

    The shape is the error without the parts that differ from job to job. Return a row for each of
    the most frequent shapes, and one for each reason with the number of its jobs.
    """
    from pyspark.sql import functions as F

    line = F.substring_index(F.trim(F.coalesce("error", F.lit(""))), "\n", 1)
    dead = archive.where("state = 'DEAD'").withColumn(
        "shape", shape_of(F.left(line, F.lit(LONGEST_SHAPE)))
    )
    return list(each(spark.sql(ERRORS, dead=dead)))


def shape_of(error: "Column") -> "Column":
    """Return the error without quoted names, ids and numbers, which differ by job, as a column."""
    from pyspark.sql import functions as F

    for pattern, replacement in SHAPES:
        error = F.regexp_replace(error, pattern, replacement)
    return error


def _take(counts: Counts, row: "Row") -> None:
    if row.place_in_reason == 1:
        counts.reasons[row.reason] = row.of_reason
    counts.errors[row.fingerprint, row.reason] = Error(row.jobs, row.sample or "", row.sample_job)
