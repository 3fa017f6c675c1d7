"""Locks under which partitions are attached and detached.

DETACH and ATTACH take a short exclusive lock, so both run under a lock_timeout and are tried again.
PostgreSQL offers no CONCURRENTLY for a table with a default partition, which is there so that a
publish never fails for lack of a partition.
"""

import logging
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import Final, LiteralString

import psycopg
from django.db import OperationalError
from psycopg import sql

from pulljobs.engine.sql import Row
from pulljobs.storage.partitions import Partition
from pulljobs.storage.statements import query
from pulljobs.storage.transactions import brief

logger = logging.getLogger("pulljobs.storage")
LOCK_PARENT: Final = "LOCK TABLE ONLY {parent} IN ACCESS EXCLUSIVE MODE"
ONE_MAKER: Final[tuple[LiteralString, ...]] = (
    "LOCK TABLE ONLY {parent} IN SHARE UPDATE EXCLUSIVE MODE",
    "LOCK TABLE {default} IN SHARE UPDATE EXCLUSIVE MODE",  # nor a vacuum of it
)
LOCK_TIMEOUT: Final = timedelta(seconds=1)
"""Time limit of locks behind which publishers wait."""
VACUUM_TIMEOUT: Final = timedelta(seconds=10)
"""Time limit of other locks. Autovacuum yields a lock after `deadlock_timeout`, 1 s by default."""
PATIENCE: Final = timedelta(seconds=10)
"""Time after which no further attempt begins, because the caller has other tasks."""


def lock_quietly(using: str, partition: Partition, *locks: LiteralString) -> None:
    """Take locks that keep out vacuum and other changes of partitions, but no reader or writer.

    `locks` are LOCK statements as for `run_on`. Their time limit is ten seconds, because a vacuum
    yields a lock only after a while.
    """
    query(using, _wait_for(VACUUM_TIMEOUT))
    for lock in locks:
        run_on(using, partition, lock)
    query(using, _wait_for(LOCK_TIMEOUT))


def run_on(using: str, partition: Partition, text: LiteralString) -> list[Row]:
    """Run a statement for a partition, whose {name} and {parent} table are filled in.

    So are {default}, the name of the default partition, and its bounds {low} and {high}.
    """
    low, high = partition.bounds
    composed = sql.SQL(text).format(
        name=sql.Identifier(partition.name),
        parent=sql.Identifier(partition.table),
        default=sql.Identifier(f"{partition.table}_default"),
        low=sql.Literal(low),
        high=sql.Literal(high),
    )
    return query(using, composed)


def try_patiently(using: str, work: Callable[[], bool]) -> bool:
    """Call `work` in a transaction and return its result.

    If a lock is not available in time, call it again for up to ten seconds, then raise.
    """
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
