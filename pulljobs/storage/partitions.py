"""Partitions, one a day: made ahead, dropped when old.

DETACH and ATTACH take a short exclusive lock, so both run under a lock_timeout and are tried again.
(CONCURRENTLY is not to be had where a default partition is, and that is what keeps a publish from
ever failing.)
"""

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from time import monotonic
from typing import Final, LiteralString, NamedTuple

import psycopg
from django.db import OperationalError, connections, transaction
from psycopg import sql

from pulljobs import ids
from pulljobs.engine.sql import Row
from pulljobs.storage import nodes
from pulljobs.storage.forgetting import AT_ONCE
from pulljobs.storage.statements import brief, query

logger = logging.getLogger("pulljobs.storage")

XIDS: Final[dict[str, LiteralString]] = {
    "pulljobs_message": "published_xid",
    "pulljobs_archived_job": "settled_xid::text::bigint",
}
"""Transaction id of a row, as the block range index has it."""
PARTITIONED: Final = tuple(XIDS)
LOCK_PARENT: Final = "LOCK TABLE ONLY {parent} IN ACCESS EXCLUSIVE MODE"
LOCK_DEFAULT: Final = "LOCK TABLE {default} IN ACCESS EXCLUSIVE MODE"
ONE_MAKER: Final[tuple[LiteralString, ...]] = (
    "LOCK TABLE ONLY {parent} IN SHARE UPDATE EXCLUSIVE MODE",
    "LOCK TABLE {default} IN SHARE UPDATE EXCLUSIVE MODE",  # nor a vacuum of it
)
NO_VACUUM: Final = "LOCK TABLE {name} IN SHARE UPDATE EXCLUSIVE MODE"
CROWDED: Final = (
    "SELECT EXISTS (SELECT FROM {default} WHERE id >= {low} AND id < {high}) AS is_crowded"
)
CREATE: Final = (
    "CREATE TABLE {name} (LIKE {parent} INCLUDING ALL, CHECK (id >= {low} AND id < {high}))"
    # A vacuum that pauses over a big day keeps autovacuum from the table of jobs; one of so many
    # new rows is soon over.
    " WITH (autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_scale_factor = 0,"
    " autovacuum_vacuum_insert_threshold = 100000)"
)
MOVE: Final = (
    "WITH moved AS (DELETE FROM {default} WHERE id >= {low} AND id < {high} RETURNING *)"
    " INSERT INTO {name} SELECT * FROM moved"
)
DROP_LEFTOVER: Final = "DROP TABLE IF EXISTS {name}"
ATTACH: Final = "ALTER TABLE {parent} ATTACH PARTITION {name} FOR VALUES FROM ({low}) TO ({high})"
BY_BLOCK_RANGES: Final = (
    "SELECT set_config('enable_seqscan', 'off', true) AS seqscan,"
    " set_config('enable_bitmapscan', 'on', true) AS bitmapscan"
)
LOCK_TIMEOUT: Final = timedelta(seconds=1)
"""Time limit of locks behind which publishers wait."""
VACUUM_TIMEOUT: Final = timedelta(seconds=10)
"""Time limit of other locks; autovacuum yields a lock after `deadlock_timeout`, 1 s by default."""
PATIENCE: Final = timedelta(seconds=10)
"""Time in which another attempt may begin, because the caller has other tasks."""


class Partition(NamedTuple):
    table: str
    day: date

    @property
    def name(self) -> str:
        return f"{self.table}_{self.day:%Y%m%d}"

    @property
    def bounds(self) -> tuple[int, int]:
        """Lowest id of the day and lowest id of the next day."""
        start = datetime.combine(self.day, time(), UTC)
        return ids.first_of(start), ids.first_of(start + timedelta(days=1))


Copied = Callable[[Partition], int | None]
"""Function that returns the transaction before which a copy of a partition is whole, or None."""


def not_owned(using: str) -> list[str]:
    """Return the partitioned tables whose partitions this role may neither make nor drop."""
    rows = query(
        using,
        sql.SQL(
            "SELECT relname FROM pg_class WHERE oid = ANY({}::regclass[])"
            " AND NOT pg_has_role(relowner, 'USAGE') ORDER BY relname"
        ).format(sql.Literal(list(PARTITIONED))),
    )
    return [row.relname for row in rows]


def existing(using: str, table: str) -> list[Partition]:
    """Return the partitions of a table by day, without the default partition."""
    rows = query(
        using,
        sql.SQL(
            "SELECT substring(c.relname FROM '[0-9]{{8}}$') AS day"
            " FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = {}::regclass AND c.relname ~ '_[0-9]{{8}}$' ORDER BY 1"
        ).format(sql.Literal(table)),
    )
    return [Partition(table, datetime.strptime(row.day, "%Y%m%d").date()) for row in rows]  # noqa: DTZ007  a date


def make_ahead(using: str, days: int) -> Iterator[Partition]:
    """Make the missing partitions for today and the next days, and yield each.

    Days whose rows are in the default partition get their partitions as well.
    """
    [row] = query(using, sql.SQL("SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS today"))
    for table in PARTITIONED:
        there = set(existing(using, table))
        for ahead in range(days + 1):
            partition = Partition(table, row.today + timedelta(days=ahead))
            if partition not in there and _made(using, partition, written=ahead <= 1):
                yield partition
        for partition in _left_behind(using, table):
            if _made(using, partition):
                yield partition


def _left_behind(using: str, table: str) -> Iterator[Partition]:
    """Yield a partition for each day with rows in the default partition, the oldest first."""
    default, low = sql.Identifier(f"{table}_default"), 0
    text = sql.SQL("SELECT min(id) AS lowest FROM {} WHERE id >= {}")
    while True:
        [row] = query(using, text.format(default, sql.Literal(low)))
        if row.lowest is None:
            return
        partition = Partition(table, ids.time_of(row.lowest).date())
        low = partition.bounds[1]
        yield partition


def drop_before(
    using: str,
    age: timedelta,
    copied: Copied | None = None,
    on_partition: Callable[[Partition], object] = lambda partition: None,
) -> Iterator[Partition]:
    """Drop partitions that are wholly older and that no live job needs, and yield each.

    With `copied`, drop only partitions of which a copy exists. `on_partition` is called for each
    partition that was checked, dropped or not.
    """
    for partition in older(using, age):
        high_xid = copied(partition) if copied else None
        if (copied is None or high_xid is not None) and drop(using, partition, high_xid):
            yield partition
        on_partition(partition)


def older(using: str, age: timedelta) -> list[Partition]:
    """Return the partitions that are wholly older."""
    oldest = ids.first_of(nodes.clock(using) - age)
    return [
        partition
        for table in PARTITIONED
        for partition in existing(using, table)
        if partition.bounds[1] <= oldest
    ]


def forget_publications(using: str, age: timedelta, dedupe_window: timedelta) -> int:
    """Delete a batch of client message ids of that age and return their number.

    Ids inside their channel's window stay; `dedupe_window` is for channels without one.
    """
    with connections[using].cursor() as cursor:
        cursor.execute(
            "DELETE FROM pulljobs_publication WHERE ctid = ANY(ARRAY("
            "SELECT publication.ctid FROM pulljobs_publication AS publication"
            " LEFT JOIN pulljobs_channel AS channel ON channel.id = publication.channel_id"
            " WHERE published_at < clock_timestamp() - greatest("
            "make_interval(secs => %s), coalesce(dedupe_window, make_interval(secs => %s)))"
            # A publisher that takes it again has locked it.
            " ORDER BY published_at LIMIT %s FOR UPDATE OF publication SKIP LOCKED))",
            [age.total_seconds(), dedupe_window.total_seconds(), AT_ONCE],
        )
        return int(cursor.rowcount)


def _made(using: str, partition: Partition, *, written: bool = True) -> bool:
    """Create a partition, move its rows from the default partition, and attach it.

    While rows leave the default partition, readers must wait for the lock of the parent: a plan
    that listed the partitions before would look for them only in the default. Writers of that day
    (`written`) must wait as well: an insert that waits for the default would fail afterwards.
    """
    if not written and _patiently(using, lambda: _attached(using, partition, moving=False)):
        return True
    return partition not in existing(using, partition.table) and _patiently(
        using, lambda: _attached(using, partition, moving=True)
    )


def fill(
    using: str, partition: Partition, load: Callable[[str], int], note: Callable[[], object]
) -> int:
    """Make a missing partition from the rows that `load` writes and return their number.

    The rows are visible only when the partition is whole. `note` runs in the transaction that
    attaches it.
    Raise ValueError if the day or any row of it exists; then no table is left.
    """
    if partition in existing(using, partition.table):
        raise ValueError(f"{partition.name} is there.")
    names = _names(partition)
    crowded = ValueError(f"Some rows of {partition.name} are there, in the default partition.")
    [row] = query(using, sql.SQL(CROWDED).format(**names))
    if row.is_crowded:
        raise crowded
    with transaction.atomic(using=using):
        # An interrupted call may have left it.
        query(using, sql.SQL(DROP_LEFTOVER).format(**names))
        query(using, sql.SQL(CREATE).format(**names))
    count = load(partition.name)
    if not _patiently(using, lambda: _attached_whole(using, partition, note)):
        query(using, sql.SQL(DROP_LEFTOVER).format(**names))
        raise crowded
    return count


def _attached_whole(using: str, partition: Partition, note: Callable[[], object]) -> bool:
    """Attach a filled partition; return False if the default partition has rows of that day."""
    names = _names(partition)

    def do(text: LiteralString) -> list[Row]:
        return query(using, sql.SQL(text).format(**names))

    _quietly(using, names, *ONE_MAKER)
    do(LOCK_DEFAULT)
    [row] = do(CROWDED)
    if not row.is_crowded:
        do(ATTACH)
        note()
    return not row.is_crowded


def _attached(using: str, partition: Partition, *, moving: bool) -> bool:
    """Attach a new partition; return False if rows would have to be moved or it exists already."""
    names = _names(partition)

    def do(text: LiteralString) -> list[Row]:
        return query(using, sql.SQL(text).format(**names))

    _quietly(using, names, *ONE_MAKER)
    if moving:
        do(LOCK_PARENT)
    do(LOCK_DEFAULT)
    [row] = do(CROWDED)
    if (row.is_crowded and not moving) or partition in existing(using, partition.table):
        return False
    do(CREATE)
    do(MOVE)
    do(ATTACH)
    return True


def _quietly(using: str, names: dict[str, sql.Composable], *locks: LiteralString) -> None:
    """Take locks for which only makers, droppers and vacuums wait, with a long time limit.

    A vacuum takes minutes: each attempt at an exclusive lock would time out behind it.
    """
    query(using, _wait_for(VACUUM_TIMEOUT))
    for lock in locks:
        query(using, sql.SQL(lock).format(**names))
    query(using, _wait_for(LOCK_TIMEOUT))


def _names(partition: Partition) -> dict[str, sql.Composable]:
    low, high = partition.bounds
    return {
        "name": sql.Identifier(partition.name),
        "parent": sql.Identifier(partition.table),
        "default": sql.Identifier(f"{partition.table}_default"),
        "low": sql.Literal(low),
        "high": sql.Literal(high),
    }


def drop(using: str, partition: Partition, high_xid: int | None = None) -> bool:
    """Drop a partition; return False if a live job needs it or if it does not exist.

    With `high_xid`, return False as well if that or a later transaction wrote to it, because the
    copy is not whole.
    """
    names = _names(partition)

    def work() -> bool:
        _quietly(using, names, *ONE_MAKER)
        if partition not in existing(using, partition.table):
            return False
        _quietly(using, names, NO_VACUUM)
        if _written_since(using, partition, high_xid):  # no publisher waits for this query
            return False
        query(using, sql.SQL(LOCK_PARENT).format(**names))
        query(using, sql.SQL("ALTER TABLE {parent} DETACH PARTITION {name}").format(**names))
        if needed(using, partition) or _written_since(using, partition, high_xid):
            transaction.set_rollback(True, using=using)
            return False
        query(using, sql.SQL("DROP TABLE {name}").format(**names))
        return True

    return not needed(using, partition) and _patiently(using, work)


def needed(using: str, partition: Partition) -> bool:
    """Return True if a live job refers to the partition; no job refers to the archive."""
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
    # The planner would rather read the whole day than look into block ranges for nothing; a
    # worker's connection keeps it from them.
    query(using, sql.SQL(BY_BLOCK_RANGES))
    text = sql.SQL("SELECT EXISTS (SELECT FROM {name} WHERE {xid} >= {high}) AS is_written").format(
        name=sql.Identifier(partition.name),
        xid=sql.SQL(XIDS[partition.table]),
        high=sql.Literal(high_xid),
    )
    [row] = query(using, text)
    return bool(row.is_written)


def _patiently(using: str, work: Callable[[], bool]) -> bool:
    """Do the work in a transaction, and again while a lock is not available in time."""
    until = monotonic() + PATIENCE.total_seconds()
    while True:
        try:
            with brief(using):
                return work()
        except OperationalError as error:
            is_locked = isinstance(error.__cause__, psycopg.errors.LockNotAvailable)
            if not is_locked or monotonic() >= until:
                raise
            logger.info("Partitions: the lock is held by another transaction; trying again.")


def _wait_for(locks: timedelta) -> sql.Composable:
    milliseconds = int(locks.total_seconds() * 1000)
    return sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(milliseconds))
