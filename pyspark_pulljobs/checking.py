"""What PostgreSQL holds of a range of ids, summed up in a task."""

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


class Part(NamedTuple):
    """Some of a day, by a query that gives a row's id, its checksum, and whether it is exported."""

    table: str
    day: date
    query: str


class Sums(NamedTuple):
    rows: int = 0
    ids: int = 0
    checksum: int = 0

    def plus(self, other: "Sums") -> "Sums":
        return Sums(*(mine + its for mine, its in zip(self, other, strict=True)))


class Found(NamedTuple):
    table: str
    day: date
    sums: Sums
    pending: int
    """Rows that are not exported yet."""


def summed(dsn: str, reader: str, parts: Iterable[Part]) -> Iterator[Found]:
    for part in parts:
        total, pending = Sums(), 0
        for batch in batches(reader, dsn, part.query, SCHEMA):
            exported = batch.filter(batch["exported"])
            pending += len(batch) - len(exported)
            # As Python's numbers: 64 bits are too few for the sum.
            sums = (sum(exported[name].to_pylist()) for name in ("id", "checksum"))
            total = total.plus(Sums(len(exported), *sums))
        yield Found(part.table, part.day, total, pending)


def rows(dsn: str, reader: str, asked: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Id and checksum of what is exported, by the queries of parts."""
    for queries in asked:
        for query in queries["query"].to_pylist():
            for batch in batches(reader, dsn, query, SCHEMA):
                exported = batch.filter(batch["exported"])
                columns = [exported["id"], exported["checksum"]]
                yield pa.RecordBatch.from_arrays(columns, ["id", "ours"])
