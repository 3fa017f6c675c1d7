"""Source of streaming queries: `spark.readStream.format("pulljobs")` claims jobs in batches.

A micro-batch of Spark is a batch of the stream, which is one lease. An offset has the name of the
stream and the number of its last batch.

- Spark asks for the offset after `start` only when the batch that ends at `start` is in its commit
  log. So `latestOffset` starts to ack all batches up to `start` while it claims the next batch. If
  there are no jobs, it waits until the ack is complete. Spark calls `commit` later, and never for
  the last batch before a pause. `commit` repeats the ack.
- The transaction of a claim also inserts the row of its batch. If a driver crashes before Spark has
  the offset, the next driver finds the batch and takes it over.
- When Spark repeats a batch after a crash, the stream claims its jobs again, except those that
  another process claimed. Tasks read only jobs that are held under the batch's lease token.

So a job is delivered at least once, and exactly once to a sink that recognizes repeated batches, if
its lease is not lost.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pyspark_pulljobs import batches, stream_options
from pyspark_pulljobs.batches import BatchSlice
from pyspark_pulljobs.stream import Stream
from pyspark_pulljobs.stream_options import StreamOptions

Offset = dict[str, Any]


def schema(options: Mapping[str, str]) -> StructType:
    """Return the columns of a stream, which are the same for all options.

    Raise ConfigurationError for wrong options. Spark calls this at `load()`. If the options were
    checked when the query starts, the last line of Spark 4.3's error would name one of its own
    variables.
    """
    stream_options.parse_options(options)
    return batches.SCHEMA


def reader(options: Mapping[str, str], schema: StructType) -> "JobsReader":
    """Return Spark's reader for these options and columns.

    Raise ConfigurationError for wrong options or columns.
    """
    batches.check(schema)
    return JobsReader(stream_options.parse_options(options), schema)


class JobsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's reader of a stream. It connects on first use: Spark creates two and pickles them."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._stream: Stream | None = None

    @property
    def stream(self) -> Stream:
        if self._stream is None:
            self._stream = Stream(self._options)
        return self._stream

    def initialOffset(self) -> Offset:
        """Return the offset of the last acked batch, where a query without checkpoint starts."""
        return self._offset(self.stream.read_acked())

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self.stream.stop_at_available_jobs()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Claim the next batch, and return the offset at its end, or `start` if there are no jobs.

        Batches up to `start` are acked. The offset also has the counts of the stream, because Spark
        shows it in the progress of the query.
        """
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_rows
        seq = self.stream.ack_and_claim(self._seq(start), rows)
        if seq == self._seq(start):
            return start
        return {**self._offset(seq), **self.stream.progress}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return self.stream.slices(self._seq(start), self._seq(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, BatchSlice):  # Spark's placeholder for an empty batch.
            return iter(())
        return batches.read_slice(self._options, partition, self._schema)

    def commit(self, end: Offset) -> None:
        self.stream.ack_soon(self._seq(end))

    def stop(self) -> None:
        if self._stream is not None:
            self._stream.leave()

    def _offset(self, seq: int) -> Offset:
        return {"stream": self._options.stream, "seq": seq}

    def _seq(self, offset: Offset) -> int:
        return stream_options.seq_of(offset, self._options.stream)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the open stream when Spark pickles the reader: tasks need no stream."""
        return {**self.__dict__, "_stream": None}
