"""Arrow batches of a query, read by ADBC or by COPY in CSV, with equal results."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from io import BufferedReader, RawIOBase
from typing import Any, Final

import psycopg
import pyarrow as pa
from adbc_driver_postgresql import dbapi
from pyarrow import csv
from pyspark import TaskContext

from pyspark_pulljobs.connecting import connect, connect_arrow

ADBC: Final = "adbc"
COPY: Final = "copy"
READERS: Final = (ADBC, COPY)
BLOCK_BYTES: Final = 16 * 2**20
_idle: Final[dict[str, dbapi.Connection]] = {}
"""Connections that an earlier task of this process left open, by DSN."""


def batches(reader: str, dsn: str, query: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Run a query, and yield its batches. Its columns must be those of the schema, in its order."""
    return (_select_by_adbc if reader == ADBC else _select_by_copy)(dsn, query, schema)


def _select_by_adbc(dsn: str, query: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
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
    connection = connect_arrow(dsn)
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


def _select_by_copy(dsn: str, query: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    text = f"COPY ({query}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
    with closing(connect(dsn)) as connection, connection.cursor().copy(text.encode()) as copy:
        source = pa.PythonFile(BufferedReader(_CopyFile(copy), BLOCK_BYTES), mode="r")
        try:
            reader = csv.open_csv(source, *_csv_options(schema))
        except pa.ArrowInvalid as error:
            if "Empty CSV" not in str(error):
                raise
            return
        for batch in reader:
            arrays = [_decode_bytes(batch[field.name], field) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _decode_bytes(texts: pa.Array, field: pa.Field) -> pa.Array:
    r"""Decode bytes, which PostgreSQL writes as `\x` and hex. Return other columns unchanged."""
    if not pa.types.is_binary(field.type):
        return texts
    decoded = [text and bytes.fromhex(text[2:]) for text in texts.to_pylist()]
    return pa.array(decoded, field.type)


def _csv_options(schema: pa.Schema) -> tuple[Any, Any, Any]:
    """Return options of the CSV reader: NULL is empty without quotes, empty text is quoted."""
    return (
        csv.ReadOptions(column_names=schema.names, block_size=BLOCK_BYTES),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(
            column_types={
                field.name: pa.string() if pa.types.is_binary(field.type) else field.type
                for field in schema
            },
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )


class _CopyFile(RawIOBase):
    """File that reads the data of a COPY."""

    def __init__(self, copy: psycopg.Copy) -> None:
        self._copy, self._rest = copy, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = memoryview(self._copy.read())
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
