"""Atomic publish of files, compared with a raw COPY and INSERT ... SELECT of the rows."""

import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.database import CHANNEL, EMPTIED, bare_connection, consumer, query
from pulljobs.lake.spark import session
from pulljobs.models import Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGE: Final = "CREATE UNLOGGED TABLE raw_stage (payload bytea)"
MESSAGES: Final = """
INSERT INTO pulljobs_message (
    channel_id, published_at, priority, content_type, headers, payload
)
SELECT id, clock_timestamp(), 0, 'application/json', '{}', raw_stage.payload
FROM pulljobs_channel, raw_stage
WHERE name = 'bench'
"""
JOBS: Final = """
INSERT INTO pulljobs_job (
    consumer_id, message_id, available_at, priority, state, retry_count, deliveries
)
SELECT {consumer_id}, id, published_at, 0, 'QUEUED', 0, 0
FROM pulljobs_message
"""


class PublishTimes(NamedTuple):
    """Median seconds, and the median ratio of the publish's rate to the insert's rate."""

    ours: float
    copy: float
    """COPY into the staging table on one connection."""
    insert: float
    """INSERT of messages and jobs from the staging table in one transaction."""
    ratio: float


def make_rows(spark: "SparkSession", rows: int, folder: Path) -> "DataFrame":
    """Write rows to files, and return a DataFrame of the files: no measurement creates rows."""
    frame = spark.range(rows).selectExpr(
        "concat('{\"number\": ', id, ', \"filler\": \"', repeat('x', 100), '\"}') AS payload"
    )
    frame.write.mode("overwrite").parquet(str(folder))
    return spark.read.parquet(str(folder))


def measure(spark: "SparkSession", rows: int, rounds: int, folder: Path) -> PublishTimes:
    """Measure the publish and the raw statements alternately.

    The jobs of the last publish stay in the tables.
    """
    frame = make_rows(spark, rows, folder)
    times = []
    for number in range(rounds):
        copy, insert = _raw(rows)
        ours = _ours(frame, rows, number)
        times.append(PublishTimes(ours, copy, insert, insert / ours))
    return PublishTimes(*map(median, zip(*times, strict=True)))


def _ours(frame: "DataFrame", rows: int, number: int) -> float:
    _empty()
    started = time.monotonic()
    frame.write.format("pulljobs").mode("append").options(
        dsn=session.dsn(), channel=CHANNEL, consumer=consumer().name, publishId=f"bench-{number}"
    ).save()
    seconds = time.monotonic() - started
    assert Job.objects.count() == rows
    return seconds


def _raw(rows: int) -> tuple[float, float]:
    _empty()
    with bare_connection() as raw:
        raw.execute(STAGE)
        raw.execute("DELETE FROM pulljobs_bulk_publish")
        row = b'{"number": 1234567, "filler": "' + b"x" * 100 + b'"}'
        started = time.monotonic()
        with raw.cursor().copy("COPY raw_stage FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["bytea"])
            for _ in range(rows):
                copy.write_row((row,))
        copied = time.monotonic()
        with raw.transaction():
            raw.execute(MESSAGES)
            raw.execute(JOBS.format(consumer_id=consumer().pk).encode())
        inserted = time.monotonic()
        raw.execute("DROP TABLE raw_stage")
    return copied - started, inserted - copied


def _empty() -> None:
    query(f"TRUNCATE {EMPTIED}, pulljobs_message")
    query("CHECKPOINT")
