"""Bulk publishes without Spark: this process does what Spark's tasks and its driver do."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from pulljobs.lake.spark.session import dsn
from pulljobs.models import Channel
from pyspark_pulljobs import bulk_writer, database_session
from pyspark_pulljobs.database_session import Session
from tests.sessions import query, wait_until

SCHEMA = pa.schema(
    {
        "payload": pa.binary(),
        "key": pa.string(),
        "priority": pa.int64(),
        "message_id": pa.string(),
        "headers": pa.map_(pa.string(), pa.string()),
        "content_type": pa.string(),
        "delay": pa.float64(),
        "available_at": pa.timestamp("us", tz="UTC"),
    }
)
WAYS = ("atomic", "chunked")


def batch(*rows: dict[str, Any], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"payload": b"x", **row} for row in rows], schema=schema)


def writer(channel: Channel, *, schema: pa.Schema = SCHEMA, **options: Any) -> Any:
    """Make the writer of one publish, as Spark's driver does."""
    given = {"dsn": dsn(), "channel": channel.name, **options}
    return bulk_writer.writer(given, from_arrow_schema(schema), overwrite=False)


def publish(
    channel: Channel, *tasks: Sequence[pa.RecordBatch], schema: pa.Schema = SCHEMA, **options: Any
) -> None:
    """Run one bulk publish, with a task for each sequence of batches of rows.

    As in Spark, a failure is raised after the abort of the publish.
    """
    made = writer(channel, schema=schema, **options)
    messages: list[Any] = []
    try:
        messages.extend(made.write(iter(task)) for task in tasks)
        made.commit(messages)
    except Exception:
        made.abort(messages)
        raise


def let_go() -> None:
    """Wait until no session holds the lock of a bulk publish.

    The server ends a session a moment after its connection was closed.
    """
    held = (
        "SELECT FROM pg_locks WHERE locktype = 'advisory'"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    wait_until(lambda: not query(held))


@contextmanager
def direct() -> Iterator[Session]:
    with database_session.open_session(dsn()) as opened:
        yield opened
