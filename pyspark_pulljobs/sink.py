"""Streaming sink: `writeStream.format("pulljobs")` publishes each micro-batch once.

Each micro-batch is an atomic publish, whose id is made of the query's id, which is in the query's
checkpoint, and of the batch's number. If Spark repeats a batch that was published, nothing is
published again. A new checkpoint makes a new query, which publishes its batches again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pulljobs.errors import ConfigurationError
from pyspark_pulljobs import atomic, columns, requests, staging
from pyspark_pulljobs.atomic import StagedTask
from pyspark_pulljobs.bulk_writer import open_publish
from pyspark_pulljobs.database_session import open_session
from pyspark_pulljobs.publish_ledger import SinkBatch
from pyspark_pulljobs.requests import ATOMIC, Request

QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"
BATCH_ID_PROPERTY: Final = "streaming.sql.batchId"


def writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """Return Spark's writer for these options, without a connection to the database.

    Spark also creates a writer for each commit. Raise ConfigurationError for wrong options or
    columns.
    """
    if overwrite:
        raise ConfigurationError('A sink only adds jobs: write with .outputMode("append").')
    request = requests.parse_request(options)
    if request.mode != ATOMIC or "publishid" in {name.lower() for name in options}:
        raise ConfigurationError("A sink sets mode and publishId itself: remove these options.")
    columns.check(schema, replays=request.consumer is not None)
    return SinkWriter(request)


class SinkWriter(DataSourceStreamArrowWriter):
    """Spark's writer of a streaming query, which Spark pickles for the tasks."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedTask:
        batch = _read_batch()
        with open_session(self._request.dsn) as session:
            address = requests.find_address(session, self._request)
            publish = open_publish(session, self._request, address, batch)
            if publish.is_done:
                return StagedTask(None, publish, 0, batch)
            return atomic.stage(session, self._request, publish, iterator, batch)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        task = next((message for message in messages if isinstance(message, StagedTask)), None)
        if task is None or task.publish.is_done:
            return
        with open_session(self._request.dsn) as session:
            address = requests.find_address(session, self._request)
            publish_id = task.publish.id
            atomic.commit(session, self._request, address, publish_id, messages, task.batch)
            staging.clean(session)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: the staged rows stay, because Spark repeats the batch by its number."""


def _read_batch() -> SinkBatch:
    """Return the micro-batch that this task runs in, from the task's local properties."""
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_ID_PROPERTY) if context else None
    batch = context.getLocalProperty(BATCH_ID_PROPERTY) if context else None
    if query is None or batch is None:
        raise ConfigurationError(
            "Spark did not pass the query id or batch number to this task: use Spark 4.3 or later."
        )
    return SinkBatch(UUID(query), int(batch))
