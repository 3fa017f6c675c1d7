"""Streaming consumer, compared with raw claims and finishes of as many jobs.

Both read all columns of the messages and do nothing with them.
"""

import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from benchmarks import loops
from benchmarks.database import CHANNEL, consumer, query, store_messages
from benchmarks.loops import OURS, RawLoop
from pulljobs.lake.spark import session
from pulljobs.models import ArchivedJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ConsumeTimes(NamedTuple):
    """Median seconds, and the median ratio of the consumer's rate to the raw rate in a round."""

    ours: float
    raw: float
    ratio: float


def measure(
    spark: "SparkSession", rows: int, batch: int, rounds: int, folder: Path
) -> ConsumeTimes:
    """Measure the streaming consumer and raw claims alternately, and return medians.

    The stream keeps its checkpoints in `folder`.
    """
    loops.make_tables()
    store_messages(rows)
    times = []
    for number in range(rounds):
        raw = _raw(batch)
        ours = _ours(spark, rows, batch, folder / str(number))
        times.append(ConsumeTimes(ours, raw, raw / ours))
    return ConsumeTimes(*map(median, zip(*times, strict=True)))


def _raw(batch: int) -> float:
    loops.queue_all("hot_lease")
    loop = RawLoop("hot_lease")
    started = time.monotonic()
    loops.drain(loop, batch)
    return time.monotonic() - started


def _ours(spark: "SparkSession", rows: int, batch: int, checkpoint: Path) -> float:
    loops.queue_all(OURS)
    query("TRUNCATE pulljobs_stream, pulljobs_stream_batch")
    jobs = (
        spark.readStream.format("pulljobs")
        .options(
            dsn=session.dsn(), channel=CHANNEL, consumer=consumer().name, maxRowsPerBatch=batch
        )
        .load()
    )
    started = time.monotonic()
    stream = jobs.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    stream.trigger(availableNow=True).start().awaitTermination()
    seconds = time.monotonic() - started
    assert ArchivedJob.objects.count() == rows
    return seconds
