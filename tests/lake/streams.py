"""Streams without Spark: the source as Spark calls it, in this process or a killed one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql.streaming.datasource import ReadMaxRows

from pulljobs.lake.models import StreamBatch
from pulljobs.lake.spark import session
from pulljobs.models import Consumer, Job
from pulljobs.states import State
from pyspark_pulljobs import batches, streaming
from pyspark_pulljobs.streaming import JobsReader, Offset

BATCH = 10


def options(consumer: Consumer, **more: object) -> dict[str, str]:
    given = {"dsn": session.dsn(), "channel": consumer.channel.name, "consumer": consumer.name}
    return given | {name: str(value) for name, value in more.items()}


@contextmanager
def source(consumer: Consumer, **more: object) -> Iterator["Source"]:
    """Open the source of a stream. At the end drop its connection, as if the Spark driver died."""
    made = Source(options(consumer, **{"maxRowsPerBatch": BATCH, **more}))
    try:
        yield made
    finally:
        made.reader.stream._links.drop()


class Source:
    """Stand-in for Spark: it calls a stream's source, and keeps the offset that it has reached."""

    def __init__(self, options: dict[str, str], at: Offset | None = None) -> None:
        self.reader: JobsReader = streaming.reader(options, batches.SCHEMA)
        self.limit = ReadMaxRows(int(options["maxRowsPerBatch"]))
        self.at = at or self.reader.initialOffset()

    def plan(self) -> Offset:
        """Return the next offset, which Spark would write into its log of offsets."""
        return self.reader.latestOffset(self.at, self.limit)

    def rows(self, end: Offset) -> list[dict[str, Any]]:
        """Return the rows from `self.at` to the offset `end`, read as the tasks of Spark do."""
        slices = self.reader.partitions(self.at, end)
        return [
            row
            for slice in slices
            for batch in self.reader.read(slice)
            for row in batch.to_pylist()
        ]

    def run(self) -> list[dict[str, Any]]:
        """Plan and read one micro-batch, and return its rows, if any. Spark would then log it."""
        end = self.plan()
        rows = [] if end == self.at else self.rows(end)
        self.at = end
        return rows


def job_ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["job_id"] for row in rows]


def states() -> dict[State, int]:
    rows = Job.objects.values_list("state", flat=True)
    return {State(state): list(rows).count(state) for state in set(rows)}


def batch(seq: int) -> StreamBatch:
    return StreamBatch.objects.get(seq=seq)
