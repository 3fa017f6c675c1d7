"""`spark.readStream.format("pulljobs")`: a consumer's jobs, claimed under leases, batch by batch.

A batch of Spark's is a lease. An offset is the name of the stream and the number of its last batch.

- Spark asks for the offset behind `start` only when the batch that ends there is in its log of
  commits. So all up to `start` is acked from then on, while the next batch is claimed and run, and
  to its end where there is none; `commit` comes too late (for the last batch of a burst, never) and
  does the same once more.
- A claim is committed together with the row of its batch. A driver that dies before Spark has the
  offset leaves a batch that the next one finds and takes over.
- A batch that Spark runs again after a crash is taken again: what nobody else took meanwhile. Tasks
  read what is held under the batch's token and nothing else.

So a job is delivered at least once, and exactly once into a sink that knows its batches.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pyspark_pulljobs import batches, streams
from pyspark_pulljobs.batches import BatchSlice
from pyspark_pulljobs.stream import Stream
from pyspark_pulljobs.streams import Wanted

Offset = dict[str, Any]


def schema(options: Mapping[str, str]) -> StructType:
    return batches.SCHEMA


def reader(options: Mapping[str, str], schema: StructType) -> "JobsReader":
    batches.check(schema)
    return JobsReader(streams.read(options), schema)


class JobsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Made twice, and pickled for the tasks: so it connects to nothing before it is asked."""

    def __init__(self, wanted: Wanted, schema: StructType) -> None:
        self._wanted, self._schema = wanted, schema
        self._stream: Stream | None = None

    @property
    def stream(self) -> Stream:
        if self._stream is None:
            self._stream = Stream(self._wanted)
        return self._stream

    def initialOffset(self) -> Offset:
        """Behind what was acked: without a checkpoint the stream goes on where it was."""
        return self._offset(self.stream.end())

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._wanted.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self.stream.stop_at_what_is_there()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._wanted.max_rows
        return self._offset(self.stream.next_after(self._seq(start), rows))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return self.stream.slices(self._seq(start), self._seq(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, BatchSlice):  # Spark's own, where there is nothing to read
            return iter(())
        return batches.read(self._wanted, partition, self._schema)

    def commit(self, end: Offset) -> None:
        self.stream.ack_soon(self._seq(end))

    def stop(self) -> None:
        if self._stream is not None:
            self._stream.leave()

    def _offset(self, seq: int) -> Offset:
        return {"stream": self._wanted.stream, "seq": seq}

    def _seq(self, offset: Offset) -> int:
        return streams.seq_of(offset, self._wanted.stream)

    def __getstate__(self) -> dict[str, Any]:
        """For the tasks, which read and nothing else."""
        return {**self.__dict__, "_stream": None}
