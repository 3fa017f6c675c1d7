"""Creation of partitions: of days to come, and of past days from rows that the lake restores."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final

from django.db import transaction
from psycopg import sql

from pulljobs import ids
from pulljobs.storage.partition_locks import (
    LOCK_PARENT,
    ONE_MAKER,
    lock_quietly,
    run_on,
    try_patiently,
)
from pulljobs.storage.partitions import PARTITIONED, Partition, existing
from pulljobs.storage.statements import query

LOCK_DEFAULT: Final = "LOCK TABLE {default} IN ACCESS EXCLUSIVE MODE"
CROWDED: Final = (
    "SELECT EXISTS (SELECT FROM {default} WHERE id >= {low} AND id < {high}) AS is_crowded"
)
CREATE: Final = (
    "CREATE TABLE {name} (LIKE {parent} INCLUDING ALL, CHECK (id >= {low} AND id < {high}))"
    # A vacuum that pauses over a big day keeps autovacuum from the table of jobs. Without pauses it
    # is soon over.
    " WITH (autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_scale_factor = 0,"
    " autovacuum_vacuum_insert_threshold = 100000)"
)
MOVE: Final = (
    "WITH moved AS (DELETE FROM {default} WHERE id >= {low} AND id < {high} RETURNING *)"
    " INSERT INTO {name} SELECT * FROM moved"
)
DROP_LEFTOVER: Final = "DROP TABLE IF EXISTS {name}"
ATTACH: Final = "ALTER TABLE {parent} ATTACH PARTITION {name} FOR VALUES FROM ({low}) TO ({high})"


def make_ahead(using: str, days: int) -> Iterator[Partition]:
    """Create the missing partitions of today and the next `days` days, and yield each.

    Days with rows in the default partition get a partition as well, which takes these rows.
    """
    [row] = query(using, sql.SQL("SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS today"))
    for table in PARTITIONED:
        there = set(existing(using, table))
        for ahead in range(days + 1):
            partition = Partition(table, row.today + timedelta(days=ahead))
            if partition not in there and _make(using, partition, written=ahead <= 1):
                yield partition
        for partition in _left_behind(using, table):
            if _make(using, partition):
                yield partition


def _left_behind(using: str, table: str) -> Iterator[Partition]:
    """Yield the missing partition of each day with rows in the default partition, oldest first."""
    default, low = sql.Identifier(f"{table}_default"), 0
    text = sql.SQL("SELECT min(id) AS lowest FROM {} WHERE id >= {}")
    while True:
        [row] = query(using, text.format(default, sql.Literal(low)))
        if row.lowest is None:
            return
        partition = Partition(table, ids.time_of(row.lowest).date())
        low = partition.bounds[1]
        yield partition


def _make(using: str, partition: Partition, *, written: bool = True) -> bool:
    """Create a partition, move its rows from the default partition, and attach it.

    Return False if it exists. While rows leave the default partition, readers must wait for the
    lock of the parent: a plan that listed the partitions before would look for them only in the
    default. If writers may insert rows of that day (`written`), they must wait as well: an insert
    that waits for the default partition would fail afterwards.
    """
    if not written and try_patiently(using, lambda: _attach(using, partition, moving=False)):
        return True
    return partition not in existing(using, partition.table) and try_patiently(
        using, lambda: _attach(using, partition, moving=True)
    )


def fill(
    using: str, partition: Partition, load: Callable[[str], int], note: Callable[[], object]
) -> int:
    """Create a missing partition with the rows that `load` writes, and return their number.

    `load` gets the name of a table, and its rows are visible only once the whole partition is
    attached. `note` runs in the transaction that attaches it. Raise ValueError if the partition or
    any row of its day exists. No table is left then.
    """
    if partition in existing(using, partition.table):
        raise ValueError(f"{partition.name} exists: it can't be filled.")
    crowded = ValueError(f"Some rows of {partition.name} are there, in the default partition.")
    [row] = run_on(using, partition, CROWDED)
    if row.is_crowded:
        raise crowded
    with transaction.atomic(using=using):
        # An interrupted call may have left it.
        run_on(using, partition, DROP_LEFTOVER)
        run_on(using, partition, CREATE)
    count = load(partition.name)
    if not try_patiently(using, lambda: _attach_filled(using, partition, note)):
        run_on(using, partition, DROP_LEFTOVER)
        raise crowded
    return count


def _attach_filled(using: str, partition: Partition, note: Callable[[], object]) -> bool:
    """Attach a filled table as a partition, and call `note` in the same transaction.

    Do neither and return False if the default partition has rows of that day.
    """
    lock_quietly(using, partition, *ONE_MAKER)
    run_on(using, partition, LOCK_DEFAULT)
    [row] = run_on(using, partition, CROWDED)
    if not row.is_crowded:
        run_on(using, partition, ATTACH)
        note()
    return not row.is_crowded


def _attach(using: str, partition: Partition, *, moving: bool) -> bool:
    """Create and attach a partition, and move the rows of its day there from the default one.

    Return False if the partition exists, or if there are rows to move but `moving` is False.
    """
    lock_quietly(using, partition, *ONE_MAKER)
    if moving:
        run_on(using, partition, LOCK_PARENT)
    run_on(using, partition, LOCK_DEFAULT)
    [row] = run_on(using, partition, CROWDED)
    if (row.is_crowded and not moving) or partition in existing(using, partition.table):
        return False
    run_on(using, partition, CREATE)
    run_on(using, partition, MOVE)
    run_on(using, partition, ATTACH)
    return True
