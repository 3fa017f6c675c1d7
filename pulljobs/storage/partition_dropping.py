"""Removal of partitions that are older than the retention and that no live job needs."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final

from django.db import transaction
from psycopg import sql

from pulljobs.storage.partition_locks import (
    LOCK_PARENT,
    ONE_MAKER,
    lock_quietly,
    run_on,
    try_patiently,
)
from pulljobs.storage.partitions import XIDS, Partition, existing, older
from pulljobs.storage.statements import query

NO_VACUUM: Final = "LOCK TABLE {name} IN SHARE UPDATE EXCLUSIVE MODE"
BY_BLOCK_RANGES: Final = (
    "SELECT set_config('enable_seqscan', 'off', true) AS seqscan,"
    " set_config('enable_bitmapscan', 'on', true) AS bitmapscan"
)
Copied = Callable[[Partition], int | None]
"""Function that returns the transaction id before which a partition is copied, or None."""


def drop_before(
    using: str,
    age: timedelta,
    copied: Copied | None = None,
    on_partition: Callable[[Partition], object] = lambda partition: None,
) -> Iterator[Partition]:
    """Drop partitions whose rows are all older than `age` and that no live job needs. Yield each.

    With `copied`, partitions are kept unless all of their rows are copied. `on_partition` is called
    with each partition of that age, dropped or not.
    """
    for partition in older(using, age):
        high_xid = copied(partition) if copied else None
        if (copied is None or high_xid is not None) and drop(using, partition, high_xid):
            yield partition
        on_partition(partition)


def drop(using: str, partition: Partition, high_xid: int | None = None) -> bool:
    """Drop a partition. Return False if a live job needs it or if it does not exist.

    `high_xid` is the number of the first transaction whose rows are not copied yet. If it is given
    and the partition has rows of it or of a later transaction, the result is False, too.
    """

    def work() -> bool:
        lock_quietly(using, partition, *ONE_MAKER)
        if partition not in existing(using, partition.table):
            return False
        lock_quietly(using, partition, NO_VACUUM)
        if _written_since(using, partition, high_xid):  # no publisher waits for this query
            return False
        run_on(using, partition, LOCK_PARENT)
        run_on(using, partition, "ALTER TABLE {parent} DETACH PARTITION {name}")
        if needed(using, partition) or _written_since(using, partition, high_xid):
            transaction.set_rollback(True, using=using)
            return False
        run_on(using, partition, "DROP TABLE {name}")
        return True

    return not needed(using, partition) and try_patiently(using, work)


def needed(using: str, partition: Partition) -> bool:
    """Return True if the message of a live job is in the partition, False for the archive."""
    if partition.table != "pulljobs_message":
        return False
    low, high = map(sql.Literal, partition.bounds)
    text = (
        "SELECT EXISTS (SELECT FROM pulljobs_job WHERE message_id >= {} AND message_id < {})"
        " AS is_needed"
    )
    [row] = query(using, sql.SQL(text).format(low, high))
    return bool(row.is_needed)


def _written_since(using: str, partition: Partition, high_xid: int | None) -> bool:
    if high_xid is None:
        return False
    # The planner would rather read the whole day than look into block ranges for nothing, and on a
    # worker's connection bitmap scans, by which it reads block ranges, are off.
    query(using, sql.SQL(BY_BLOCK_RANGES))
    text = sql.SQL("SELECT EXISTS (SELECT FROM {name} WHERE {xid} >= {high}) AS is_written").format(
        name=sql.Identifier(partition.name),
        xid=sql.SQL(XIDS[partition.table]),
        high=sql.Literal(high_xid),
    )
    [row] = query(using, text)
    return bool(row.is_written)
