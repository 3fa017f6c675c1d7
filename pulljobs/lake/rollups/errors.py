"""Errors of dead jobs, where equal errors are counted together."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pulljobs.lake.rollups.counts import KEPT_ERRORS, Counts, Error, Rows
from pulljobs.lake.rollups.hours import key_of
from pulljobs.lake.spark.frame_rows import each

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

LONGEST_SAMPLE: Final = 2_000
LONGEST_SHAPE: Final = 500
SHAPES: Final = (
    (r"'[^']*'|\"[^\"]*\"", "'?'"),
    (r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b", "#"),
    (r"\b0x[0-9a-fA-F]+\b|\b(?=\w*[0-9])\w{12,}\b", "#"),
    (r"[0-9]+([.,:][0-9]+)*", "#"),
    (r"\s+", " "),
)
"""Parts that may differ between equal errors: quoted names, ids, numbers."""

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
    """Add the errors to the counts of their consumers and hours."""
    for row in shapes:
        _take(rows[key_of(row)], row)


def count_shapes(spark: "SparkSession", archive: "DataFrame") -> "list[Row]":
    """Count the most frequent errors of each consumer and hour, equal errors together."""
    from pyspark.sql import functions as F

    line = F.substring_index(F.trim(F.coalesce("error", F.lit(""))), "\n", 1)
    dead = archive.where("state = 'DEAD'").withColumn(
        "shape", shape_of(F.left(line, F.lit(LONGEST_SHAPE)))
    )
    return list(each(spark.sql(ERRORS, dead=dead)))


def shape_of(error: "Column") -> "Column":
    """Return the error without the parts that differ from job to job."""
    from pyspark.sql import functions as F

    for pattern, replacement in SHAPES:
        error = F.regexp_replace(error, pattern, replacement)
    return error


def _take(counts: Counts, row: "Row") -> None:
    if row.place_in_reason == 1:
        counts.reasons[row.reason] = row.of_reason
    counts.errors[row.fingerprint, row.reason] = Error(row.jobs, row.sample or "", row.sample_job)
