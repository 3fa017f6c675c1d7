"""Source and sink of streams whose Spark driver is killed at named points, once at each.

A point is `name@batch`: `claimed` before Spark has the offset of the batch, `reading` within a
task, `drained` when a task has read all, `written` when the sink has committed the batch and Spark
has not, `acking` and `acked` around the ack of the batch.
"""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from pyspark_pulljobs import DefaultSource, batches, requests, stream_options
from pyspark_pulljobs.batches import BatchSlice
from pyspark_pulljobs.sink import SinkWriter
from pyspark_pulljobs.stream_options import StreamOptions
from pyspark_pulljobs.streaming import JobsReader, Offset

OURS = ("points", "marks", "driver")


@dataclass(frozen=True)
class Fate:
    points: frozenset[str]
    marks: str
    """Directory with an empty file for each point at which the Spark driver was killed."""
    driver: int
    """Process group of the Spark driver, which is killed."""

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "Fate":
        points = frozenset(options["points"].split())
        return cls(points, options["marks"], int(options["driver"]))

    def meet(self, point: str) -> None:
        """Kill the Spark driver if the query is at a chosen point for the first time."""
        if point in self.points and not Path(self.marks, point).exists():
            Path(self.marks, point).touch()
            self.kill()

    def kill(self) -> NoReturn:
        os.killpg(self.driver, signal.SIGKILL)
        os.killpg(0, signal.SIGKILL)  # Python workers of Spark have a group of their own.
        raise AssertionError("still alive")


class DyingSource(DefaultSource):
    @classmethod
    def name(cls) -> str:
        return "dying"

    def schema(self) -> StructType:
        return batches.SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        fate = Fate.from_options(self.options)
        return DyingReader(stream_options.parse_options(_without(self.options)), schema, fate)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return DyingWriter(
            requests.parse_request(_without(self.options)), Fate.from_options(self.options)
        )


@dataclass
class DyingSlice(BatchSlice):
    seq: int = 0


class DyingReader(JobsReader):
    def __init__(self, options: StreamOptions, schema: StructType, fate: Fate) -> None:
        super().__init__(options, schema)
        self._fate = fate

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        self._fate.meet(f"acking@{start['seq']}")
        self.stream.ack(start["seq"])
        self._fate.meet(f"acked@{start['seq']}")
        end = super().latestOffset(start, limit)
        self._fate.meet(f"claimed@{end['seq']}")
        return end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        slices = self.stream.slices(start["seq"], end["seq"])
        return [DyingSlice(slice.query, slice.redelivery, end["seq"]) for slice in slices]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in super().read(partition):
            yield batch
            if isinstance(partition, DyingSlice):
                self._fate.meet(f"reading@{partition.seq}")
        if isinstance(partition, DyingSlice):
            self._fate.meet(f"drained@{partition.seq}")


class DyingWriter(SinkWriter):
    def __init__(self, request: requests.Request, fate: Fate) -> None:
        super().__init__(request)
        self._fate = fate

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        super().commit(messages, batchId)
        self._fate.meet(f"written@{batchId + 1}")


def _without(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if name not in OURS}
