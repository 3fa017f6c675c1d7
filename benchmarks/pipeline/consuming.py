"""The streaming consumer until nothing is left, beside raw claims and finishes of as many jobs."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks import loops
from benchmarks.database import CHANNEL, consumer, query, store_messages
from benchmarks.loops import OURS, RawLoop
from pulljobs.models import ArchivedJob
from pulljobs.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Consumed(NamedTuple):
    """Seconds, the best of the rounds."""

    ours: float
    raw: float


def measure(spark: "SparkSession", rows: int, batch: int, rounds: int, folder: Path) -> Consumed:
    """`folder` is for checkpoints."""
    loops.make_tables()
    store_messages(rows)
    found = []
    for number in range(rounds):
        raw = _raw(batch)
        found.append(Consumed(_ours(spark, rows, batch, folder / str(number)), raw))
    return Consumed(*map(min, zip(*found, strict=True)))


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
    stream = jobs.writeStream.foreachBatch(_read).option("checkpointLocation", str(checkpoint))
    stream.trigger(availableNow=True).start().awaitTermination()
    seconds = time.monotonic() - started
    assert ArchivedJob.objects.count() == rows
    return seconds


def _read(frame: "DataFrame", batch: int) -> None:
    """All of it, payloads too, and nothing else."""
    frame.write.format("noop").mode("overwrite").save()
