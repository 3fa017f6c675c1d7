"""The source and the sink as they are, in drivers that are killed at a named point, each once.

Points are `word@number` of a batch: `claimed` before Spark has its offset, `reading` within a task,
`drained` when a task has read all, `written` when the sink has it and Spark has not yet said so,
`acking` and `acked` around the ack of that batch.
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

from pyspark_pulljobs import DefaultSource, batches, requests, streams
from pyspark_pulljobs.batches import BatchSlice
from pyspark_pulljobs.sink import SinkWriter
from pyspark_pulljobs.streaming import JobsReader, Offset
from pyspark_pulljobs.streams import Wanted

OURS = ("points", "marks", "driver")


@dataclass(frozen=True)
class Fate:
    points: frozenset[str]
    marks: str
    """A directory: what is there has been."""
    driver: int
    """Its process group."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Fate":
        points = frozenset(options["points"].split())
        return cls(points, options["marks"], int(options["driver"]))

    def meet(self, point: str) -> None:
        """Kill the driver and all that is its, if that is the point, and it was not met before."""
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
        fate = Fate.of(self.options)
        return DyingReader(streams.read(_without(self.options)), schema, fate)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return DyingWriter(requests.read(_without(self.options)), Fate.of(self.options))


@dataclass
class DyingSlice(BatchSlice):
    seq: int = 0


class DyingReader(JobsReader):
    def __init__(self, wanted: Wanted, schema: StructType, fate: Fate) -> None:
        super().__init__(wanted, schema)
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
        return [DyingSlice(slice.query, end["seq"]) for slice in slices]

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
