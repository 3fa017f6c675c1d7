"""Slices (parts) of a stream's batch: each task of Spark reads the jobs of one slice."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import psycopg
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pulljobs.engine.sql import statement
from pulljobs.errors import ConfigurationError
from pyspark_pulljobs import selecting
from pyspark_pulljobs.database_session import open_session
from pyspark_pulljobs.stream_options import StreamOptions

MIN_ROWS: Final = 1_000
"""Largest number of jobs for which a second task of Spark is not worth its start."""
SCHEMA: Final = StructType(
    [
        StructField("job_id", LongType()),
        StructField("lease_token", StringType()),
        StructField("message_id", LongType()),
        StructField("payload", BinaryType()),
        StructField("content_type", StringType()),
        StructField("headers", MapType(StringType(), StringType())),
        StructField("key", StringType()),
        StructField("priority", IntegerType()),
        StructField("client_message_id", StringType()),
        StructField("published_at", TimestampType()),
        StructField("retry_count", IntegerType()),
        StructField("deliveries", IntegerType()),
    ]
)
"""Columns of a stream."""
HEADERS: Final = SCHEMA.names.index("headers")
_RESULT_SCHEMA: Final = to_arrow_schema(SCHEMA, timezone="UTC")
_QUERY_SCHEMA: Final = _RESULT_SCHEMA.set(HEADERS, pa.field("headers", pa.string()))
"""Columns as batch_rows.sql returns them: headers are JSON text."""


@dataclass
class BatchSlice(InputPartition):
    """Slice: the jobs of a stream's batch that one task of Spark reads."""

    query: str
    """Query for those of its jobs that the batch's lease still holds, with their messages."""
    redelivery: str
    """Statement that counts one more delivery of these jobs."""


def check(schema: StructType) -> None:
    """Raise ConfigurationError for a column that a stream does not have, or of another type."""
    for column in schema.fields:
        if column.name not in SCHEMA.names:
            known = ", ".join(SCHEMA.names)
            raise ConfigurationError(
                f"A stream has no column {column.name!r}: its columns are {known}."
            )
        if column.dataType != SCHEMA[column.name].dataType:
            wanted = SCHEMA[column.name].dataType.simpleString()
            raise ConfigurationError(
                f"Column {column.name!r} of a stream is of type {wanted}, not "
                f"{column.dataType.simpleString()}."
            )


def slice_batch(
    connection: psycopg.Connection[Any], batch_id: int, token: UUID, jobs: int, partitions: int
) -> list[BatchSlice]:
    """Divide the jobs of a batch, numbered from 1 to `jobs`, into slices of about equal length.

    There are at most `partitions`, and at most one for each `MIN_ROWS` jobs or a rest of them. The
    connection only puts the values into the text of the queries; nothing is read.
    """
    count = max(min(partitions, -(-jobs // MIN_ROWS)), 1)
    cuts = [jobs * number // count for number in range(count + 1)]
    bind = psycopg.ClientCursor(connection).mogrify
    texts = [statement(name) for name in ("batch_rows", "count_redelivery")]
    slices = []
    for first, last in zip(cuts, cuts[1:], strict=False):
        params = {"batch_id": batch_id, "lease_token": token, "first": first + 1, "last": last}
        slices.append(BatchSlice(*(bind(text, params) for text in texts)))
    return slices


def read_slice(
    options: StreamOptions, slice: BatchSlice, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Read the jobs of a slice that are still leased, with the columns and the order of the schema.

    If Spark repeats the task, each of these jobs first uses up one more of `max_deliveries`.
    """
    if is_repeated(TaskContext.get()):
        with open_session(options.dsn) as session:
            session.execute(slice.redelivery)
    target = to_arrow_schema(schema, timezone="UTC")
    for batch in selecting.batches(options.reader, options.dsn, slice.query, _QUERY_SCHEMA):
        headers = _decode_headers(batch.column(HEADERS)) if "headers" in target.names else None
        columns = [
            headers if name == "headers" else batch.column(_QUERY_SCHEMA.get_field_index(name))
            for name in target.names
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=target)


def is_repeated(context: TaskContext | None) -> bool:
    """Return True if this is not Spark's first attempt at the task."""
    return context is not None and context.attemptNumber() > 0


def _decode_headers(texts: pa.Array) -> pa.Array:
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), _RESULT_SCHEMA.field(HEADERS).type)
    pairs = [None if text is None else list(json.loads(text).items()) for text in texts.to_pylist()]
    return pa.array(pairs, _RESULT_SCHEMA.field(HEADERS).type)
