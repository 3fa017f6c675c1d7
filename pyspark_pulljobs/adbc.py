"""Sessions and queries by ADBC, which returns results as Arrow batches."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Final

import pyarrow as pa
from adbc_driver_postgresql import dbapi
from pyspark import TaskContext

from pulljobs.errors import ConfigurationError
from pyspark_pulljobs.connecting import SESSION_SETTINGS, describe_failure, in_utf8

BLOCK_BYTES: Final = 16 * 2**20
_idle: Final[dict[str, dbapi.Connection]] = {}
"""Connections that an earlier task of this process left open, by DSN."""


def connect(dsn: str) -> dbapi.Connection:
    """Open an ADBC session in UTC and UTF-8, which returns results as Arrow batches."""
    with ExitStack() as opened:
        try:
            connection = dbapi.connect(in_utf8(dsn), autocommit=True)
            opened.enter_context(closing(connection))
            with closing(connection.cursor()) as cursor:
                cursor.execute(SESSION_SETTINGS)
                cursor.fetchall()
        except dbapi.Error as error:
            raise ConfigurationError(describe_failure(dsn, error)) from None
        opened.pop_all()
    return connection


def select(dsn: str, query: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Run a query, and yield its batches with the types of the schema."""
    with _fetch(dsn, query) as result:
        for batch in result:
            yield batch.cast(schema)


@contextmanager
def _fetch(dsn: str, query: str) -> Iterator[pa.RecordBatchReader]:
    """Run a query, and leave the connection open for the next task in this process.

    Spark reuses processes. A new connection is expensive, because ADBC first reads all types of the
    database.
    """
    connection, cursor = _connect_and_execute(dsn, query)
    with ExitStack() as resources:
        resources.enter_context(closing(connection))
        resources.enter_context(closing(cursor))
        yield cursor.fetch_record_batch()
        if TaskContext.get() is not None and dsn not in _idle:
            cursor.close()
            resources.pop_all()
            _idle[dsn] = connection


def _connect_and_execute(dsn: str, query: str) -> tuple[dbapi.Connection, dbapi.Cursor]:
    """Run a query on the connection that an earlier task left open, or on a new connection."""
    if idle := _idle.pop(dsn, None):
        try:
            return idle, _execute(idle, query)
        except dbapi.Error:  # The server may have closed the connection in the meantime.
            idle.close()
    connection = connect(dsn)
    try:
        return connection, _execute(connection, query)
    except BaseException:
        connection.close()
        raise


def _execute(connection: dbapi.Connection, query: str) -> dbapi.Cursor:
    cursor = connection.cursor()
    try:
        cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": BLOCK_BYTES})
        cursor.execute(query)
    except BaseException:
        cursor.close()
        raise
    return cursor
