"""Rows of a query as Arrow batches, by ADBC or by COPY in CSV: both stream, and give the same."""

from collections.abc import Iterator
from contextlib import closing
from io import BufferedReader, RawIOBase
from typing import Any, Final

import psycopg
import pyarrow as pa
from pyarrow import csv

from pyspark_pulljobs.connecting import connect, connect_arrow

ADBC: Final = "adbc"
COPY: Final = "copy"
READERS: Final = (ADBC, COPY)
BLOCK_BYTES: Final = 16 * 2**20


def batches(reader: str, dsn: str, query: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The query's columns must be those of the schema, by name and order, bytes as hex for COPY."""
    return (_by_adbc if reader == ADBC else _by_copy)(dsn, query, schema)


def _by_adbc(dsn: str, query: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with closing(connect_arrow(dsn)) as connection, closing(connection.cursor()) as cursor:
        cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": BLOCK_BYTES})
        cursor.execute(query)
        for batch in cursor.fetch_record_batch():
            yield batch.cast(schema)


def _by_copy(dsn: str, query: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    text = f"COPY ({query}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
    with closing(connect(dsn)) as connection, connection.cursor().copy(text.encode()) as copy:
        source = pa.PythonFile(BufferedReader(_Stream(copy), BLOCK_BYTES), mode="r")
        try:
            reader = csv.open_csv(source, *_as_postgres_writes(schema))
        except pa.ArrowInvalid as error:
            if "Empty CSV" not in str(error):
                raise
            return
        for batch in reader:
            arrays = [_bytes_of(batch[field.name], field) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _bytes_of(texts: pa.Array, field: pa.Field) -> pa.Array:
    r"""From `\x` and hex, which is how PostgreSQL writes bytes; any other column as it is."""
    if not pa.types.is_binary(field.type):
        return texts
    decoded = [text and bytes.fromhex(text[2:]) for text in texts.to_pylist()]
    return pa.array(decoded, field.type)


def _as_postgres_writes(schema: pa.Schema) -> tuple[Any, Any, Any]:
    """NULL is nothing at all, text that is empty is quoted."""
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


class _Stream(RawIOBase):
    """What a COPY sends, as a file."""

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
