"""Restore of a day from the lake into a partition of PostgreSQL.

The rows get transaction numbers below the next window of the export, so they are not exported
again.
"""

import io
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from django.db import connections
from psycopg import sql
from pyarrow import csv, parquet

from pulljobs.errors import LakeError
from pulljobs.lake import ledger, lock, verified_days
from pulljobs.lake.spark.comparing import PARTITIONED
from pulljobs.lake.spark.tables import Table
from pulljobs.progress import show_progress
from pulljobs.storage import partition_making
from pulljobs.storage.partitions import Partition
from pyspark_pulljobs.schemas import TABLES

BATCH: Final = 20_000
"""Number of rows in memory at once."""
LAKE_ONLY: Final = frozenset({"channel", "consumer", "payload_bytes", "payload_md5"})
"""Columns that PostgreSQL does not have."""
XIDS: Final = {"archive": "settled_xid", "messages": "published_xid"}
"""Column with the transaction number, by table of the lake."""


class Restored(NamedTuple):
    rows: dict[str, int]
    left_out: dict[str, str]
    """Reason by table that was left out."""


def restore(using: str, location: str, day: date) -> Restored:
    """Copy the rows of a day from the lake into PostgreSQL, and return how many, by table.

    A table is left out, with its reason in the result, if PostgreSQL has rows of the day, if the
    lake has none, or if a payload was not exported. Raise LakeError if all tables are left out, or
    if PostgreSQL has no record of exports to this lake.
    """
    lock.check_owner(using)
    rows, left_out = {}, {}
    with lock.hold_lock(using):
        high = ledger.read_settled_high(using, location)
        for name in TABLES:
            table = Table(location, name)
            if problem := _problem(table, day):
                left_out[name] = problem
                continue
            if not high:
                raise LakeError(ledger.UNKNOWN)
            partition = Partition(PARTITIONED[name], day)
            note = partial(verified_days.record_restore, using, location, partition)
            try:
                rows[name] = _filled(using, table, partition, high, note)
            except ValueError as error:
                left_out[name] = str(error)
    if not rows:
        raise LakeError(f"Nothing of {day} was restored. {' '.join(left_out.values())}")
    return Restored(rows, left_out)


def _problem(table: Table, day: date) -> str:
    held = table.list_files([day])
    if not held:
        return f"The lake has no {table.name} of that day."
    if table.name == "messages":
        missing = sum(_without_payload(batch) for batch in _batches(table, day))
        if missing:
            return f"{missing:,} messages are in the lake without their payloads."
    return ""


def _without_payload(batch: pa.RecordBatch) -> int:
    return int(pc.sum(pc.is_null(batch["payload"])).as_py() or 0)


def _filled(
    using: str, table: Table, partition: Partition, high: int, note: Callable[[], object]
) -> int:
    columns = [name for name in TABLES[table.name].names if name not in LAKE_ONLY]

    total = sum(held.rows for held in table.list_files([partition.day]))

    def load(name: str) -> int:
        text = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(
            sql.Identifier(name), sql.SQL(", ").join(map(sql.Identifier, columns))
        )
        with (
            show_progress(f"restore {table.name}", "rows", total) as shown,
            connections[using].cursor() as cursor,
            cursor.copy(text) as copy,
        ):
            for batch in _batches(table, partition.day):
                copy.write(_as_csv(_with_old_xids(batch, XIDS[table.name], high).select(columns)))
                shown.advance(len(batch))
        return shown.done

    return partition_making.fill(using, partition, load, note)


def _batches(table: Table, day: date) -> Iterator[pa.RecordBatch]:
    for held in table.list_files([day]):
        with parquet.ParquetFile(held.path, filesystem=table.filesystem) as file:
            for batch in file.iter_batches(BATCH):
                columns = [_without_views(column) for column in batch.columns]
                yield pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _without_views(column: pa.Array) -> pa.Array:
    """Return the column in Arrow's plain type for text or bytes.

    Compaction and erasure write files whose columns are read as Arrow's view types instead.
    """
    if pa.types.is_string_view(column.type):
        return column.cast(pa.string())
    if pa.types.is_binary_view(column.type):
        return column.cast(pa.binary())
    return column


def _with_old_xids(batch: pa.RecordBatch, column: str, high: int) -> pa.RecordBatch:
    """Return the batch with each transaction number from `high` on replaced by `high` - 1.

    The next window begins at `high`. Numbers that another cluster assigned may be higher.
    """
    old = pc.min_element_wise(batch[column], pa.scalar(high - 1, pa.int64()))
    return batch.set_column(batch.schema.names.index(column), column, old)


def _as_csv(batch: pa.RecordBatch) -> bytes:
    arrays = [_hex(batch[name]) for name in batch.schema.names]
    out = io.BytesIO()
    csv.write_csv(
        pa.RecordBatch.from_arrays(arrays, batch.schema.names),
        out,
        csv.WriteOptions(include_header=False),
    )
    return out.getvalue()


def _hex(column: pa.Array) -> pa.Array:
    if not pa.types.is_binary(column.type):
        return column
    values = column.to_pylist()
    return pa.array(
        [None if value is None else f"\\x{value.hex()}" for value in values], pa.string()
    )
