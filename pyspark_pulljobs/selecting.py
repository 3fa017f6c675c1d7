"""Queries that return Arrow batches, by ADBC or by COPY in CSV, with equal results."""

from collections.abc import Iterator
from contextlib import closing
from io import BufferedReader, RawIOBase
from typing import Any, Final

import psycopg
import pyarrow as pa
from pyarrow import csv

from pyspark_pulljobs.connecting import connect

ADBC: Final = "adbc"
COPY: Final = "copy"
READERS: Final = (ADBC, COPY)
"""Ways to read rows."""
BLOCK_BYTES: Final = 16 * 2**20


def batches(reader: str, dsn: str, query: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Run a query by ADBC or by COPY, as `reader` says, and yield its batches.

    The columns of the query must be those of the schema, in its order.
    """
    if reader == COPY:
        return _select_by_copy(dsn, query, schema)
    from pyspark_pulljobs import adbc  # not above: COPY needs no driver

    return adbc.select(dsn, query, schema)


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
    """Return the column of a bytes field as bytes. Columns of other fields are returned unchanged.

    The setting bytea_output decides whether PostgreSQL writes hex or escapes. Both are decoded.
    """
    if not pa.types.is_binary(field.type):
        return texts
    unescape = psycopg.pq.Escaping().unescape_bytea
    decoded = [text and bytes(unescape(text.encode())) for text in texts.to_pylist()]
    return pa.array(decoded, field.type)


def _csv_options(schema: pa.Schema) -> tuple[Any, Any, Any]:
    """Return options of Arrow's CSV reader, by which a value without quotes is NULL if it is empty.

    An empty text has quotes.
    """
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
    """File object over the data that a COPY sends."""

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
