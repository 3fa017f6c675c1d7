"""Checksums of the rows of a day in PostgreSQL, read and summed up in Spark's tasks or in threads.

The argument `reader` is the way to read rows: "adbc" or "copy".
"""

from collections.abc import Iterable, Iterator
from datetime import date
from typing import Final, NamedTuple

import pyarrow as pa

from pyspark_pulljobs.selecting import batches

SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("checksum", pa.int64()),
        pa.field("exported", pa.bool_()),
    ]
)


class DayPart(NamedTuple):
    """Rows of a range of ids within one day, to be compared with the lake."""

    table: str
    day: date
    query: str
    """Query for id, checksum and `exported` (boolean) of each of its rows in PostgreSQL."""


class Sums(NamedTuple):
    """Number of rows, sum of their ids, and sum of their checksums."""

    rows: int = 0
    ids: int = 0
    checksum: int = 0

    def plus(self, other: "Sums") -> "Sums":
        return Sums(*map(sum, zip(self, other, strict=True)))


class PartSums(NamedTuple):
    """Sums over the exported rows of one range of ids of a day, to compare with the lake's."""

    table: str
    day: date
    sums: Sums
    pending: int
    """Number of rows that are not exported yet."""


def sum_parts(dsn: str, reader: str, parts: Iterable[DayPart]) -> Iterator[PartSums]:
    """Run the query of each range of ids, and yield the sums over its exported rows."""
    for part in parts:
        total, pending = Sums(), 0
        for batch in batches(reader, dsn, part.query, SCHEMA):
            exported = batch.filter(batch["exported"])
            pending += len(batch) - len(exported)
            # Summed as Python integers, because the sum does not fit in 64 bits.
            sums = (sum(exported[name].to_pylist()) for name in ("id", "checksum"))
            total = total.plus(Sums(len(exported), *sums))
        yield PartSums(part.table, part.day, total, pending)


def read_checksums(
    dsn: str, reader: str, queries: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run the query in each row of `queries`, and yield id and checksum of the exported rows."""
    for batch_of_queries in queries:
        for query in batch_of_queries["query"].to_pylist():
            for batch in batches(reader, dsn, query, SCHEMA):
                exported = batch.filter(batch["exported"])
                columns = [exported["id"], exported["checksum"]]
                yield pa.RecordBatch.from_arrays(columns, ["id", "ours"])
