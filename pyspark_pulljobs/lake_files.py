"""Reads of the lake's Parquet files by Python, where Spark's JVM has no filesystem for the lake."""

from collections.abc import Collection, Iterable, Iterator
from datetime import date
from typing import Final

import pyarrow as pa
from pyarrow.parquet import ParquetFile

from pyspark_pulljobs.filesystems import open_location
from pyspark_pulljobs.schemas import DAY

BATCH: Final = 50_000
"""Rows of a batch by default."""
BATCH_BYTES: Final = 64 * 1024 * 1024
"""Bytes of a batch, about: it has fewer rows if their texts are long. This bounds the memory."""


def read_files(
    location: str, schema: pa.Schema, named: Iterable[pa.RecordBatch], batch_rows: int = BATCH
) -> Iterator[pa.RecordBatch]:
    """Read the files that the rows of `named` name by `path` and `day`, and yield their rows.

    Paths are relative to `location`, the directory of the table. The day is that of `named`. Other
    columns that a file does not have are NULL, because the file may be older than they are.
    """
    filesystem = open_location(location)
    encoded = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    for batch in named:
        for row in batch.to_pylist():
            with ParquetFile(row["path"], filesystem=filesystem, read_dictionary=encoded) as file:
                known = [name for name in schema.names if name in file.schema_arrow.names]
                size = min(batch_rows, _count_fitting(file, known))
                for rows in file.iter_batches(size, columns=known):
                    yield _complete(rows, schema, row["day"])


def _count_fitting(file: ParquetFile, names: Collection[str]) -> int:
    """Return how many rows of the file, read with these columns, fit into BATCH_BYTES.

    This is an estimate from the sizes of the columns in the file's metadata, in which texts that
    repeat may count once.
    """
    meta = file.metadata
    columns = [
        group.column(number)
        for group in map(meta.row_group, range(meta.num_row_groups))
        for number in range(group.num_columns)
    ]
    size = sum(each.total_uncompressed_size for each in columns if each.path_in_schema in names)
    rows: int = BATCH_BYTES * meta.num_rows // max(1, size)
    return max(1, rows)


def _complete(rows: pa.RecordBatch, schema: pa.Schema, day: date) -> pa.RecordBatch:
    columns = [_column(rows, field, day) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(rows: pa.RecordBatch, field: pa.Field, day: date) -> pa.Array:
    if field.name in rows.schema.names:
        return rows[field.name].cast(field.type)
    return pa.array([day if field.name == DAY.name else None] * len(rows), field.type)
