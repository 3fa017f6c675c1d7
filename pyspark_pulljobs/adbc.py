"""Queries by ADBC, the database driver of Apache Arrow, which returns batches of columns.

The DB-API of the driver imports Polars, where it is installed, and Arrow's data sets with pandas.
This module uses the lower layer of the driver, which imports none of them.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import chain
from typing import Final

import adbc_driver_postgresql
import psycopg
import pyarrow as pa
from adbc_driver_manager import AdbcConnection, AdbcStatement, Error
from pyspark import TaskContext

from pulljobs.errors import ConfigurationError
from pyspark_pulljobs.connecting import SESSION_SETTINGS, describe_failure, in_utf8

BLOCK_BYTES: Final = 16 * 2**20
"""Approximate size of a batch."""
DRIVER_ERRORS: Final = (Error, OSError, pa.ArrowException)
"""Errors that the database driver raises. Those while batches are read come from Arrow."""


class ArrowConnection:
    """ADBC connection in autocommit mode, for use in one thread."""

    def __init__(self, dsn: str) -> None:
        with ExitStack() as handles:
            database = handles.enter_context(adbc_driver_postgresql.connect(dsn))
            self._connection = handles.enter_context(AdbcConnection(database))
            self._handles = handles.pop_all()

    def close(self) -> None:
        self._handles.close()

    @contextmanager
    def execute(self, query: str) -> Iterator[pa.RecordBatchReader]:
        """Run a query, and provide a reader of its batches, which is open within the block."""
        with AdbcStatement(self._connection) as statement:
            statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": BLOCK_BYTES})
            statement.set_sql_query(query)
            stream, _rows = statement.execute_query()
            with pa.RecordBatchReader.from_stream(stream) as reader:
                yield reader


_idle: Final[defaultdict[str, list[ArrowConnection]]] = defaultdict(list)
"""Connections that earlier queries of this process left open, by DSN."""
_is_kept: Final = threading.Event()
"""Event that is set within a block of `keep_connections`."""


@contextmanager
def keep_connections() -> Iterator[None]:
    """Keep connections open for later queries of the block, in all threads, and close them after.

    Spark's tasks need no such block, because each process of Spark runs one task after the other.
    """
    _is_kept.set()
    try:
        yield
    finally:
        _is_kept.clear()
        for connection in chain.from_iterable(_idle.values()):
            connection.close()
        _idle.clear()


def connect(dsn: str) -> ArrowConnection:
    """Open a connection with time zone UTC and encoding UTF-8.

    Raise ConfigurationError if that fails.
    """
    with ExitStack() as opened:
        try:
            connection = opened.enter_context(closing(ArrowConnection(in_utf8(dsn))))
            with connection.execute(SESSION_SETTINGS) as done:
                done.read_all()
        except DRIVER_ERRORS as error:
            raise ConfigurationError(describe_failure(dsn, error)) from None
        opened.pop_all()
    return connection


def select(dsn: str, query: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Run a query, and yield its batches, with the column types of the schema.

    Raise psycopg.OperationalError if the query fails, ConfigurationError without a connection.
    """
    try:
        with _fetch(dsn, query) as result:
            for batch in result:
                yield batch.cast(schema)
    except DRIVER_ERRORS as error:
        raise psycopg.OperationalError(str(error)) from error


@contextmanager
def _fetch(dsn: str, query: str) -> Iterator[pa.RecordBatchReader]:
    """Run a query, and provide its reader within the block. Then close or keep the connection.

    After a query without error, a process keeps one for each DSN in tasks of Spark, and all within
    `keep_connections`. A new one is expensive: ADBC first reads all types of the database.
    """
    with ExitStack() as resources:
        connection = resources.enter_context(closing(_connect(dsn)))
        with connection.execute(query) as result:
            yield result
        if _is_kept.is_set() or (TaskContext.get() is not None and not _idle[dsn]):
            resources.pop_all()
            _idle[dsn].append(connection)


def _connect(dsn: str) -> ArrowConnection:
    """Return a connection that an earlier query left open, if it still works, or a new one."""
    with suppress(IndexError):
        idle = _idle[dsn].pop()
        try:
            with idle.execute("SELECT 1") as answer:
                answer.read_all()
        except DRIVER_ERRORS:  # The server may have closed the connection in the meantime.
            idle.close()
        else:
            return idle
    return connect(dsn)
