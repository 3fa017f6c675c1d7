"""Locks under which partitions are attached and detached.

DETACH and ATTACH take a short exclusive lock, so both run under a lock_timeout and are tried again.
(CONCURRENTLY is not to be had where a default partition is, and that is what keeps a publish from
ever failing.)
"""

import logging
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import Final, LiteralString

import psycopg
from django.db import OperationalError
from psycopg import sql

from pulljobs.storage.partitions import Partition
from pulljobs.storage.statements import brief, query

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
"""Time in which another attempt may begin, because the caller has other tasks."""


def lock_quietly(using: str, names: dict[str, sql.Composable], *locks: LiteralString) -> None:
    """Take locks for which only makers, droppers and vacuums wait, with a long time limit.

    A vacuum takes minutes: each attempt at an exclusive lock would time out behind it.
    """
    query(using, _wait_for(VACUUM_TIMEOUT))
    for lock in locks:
        query(using, sql.SQL(lock).format(**names))
    query(using, _wait_for(LOCK_TIMEOUT))


def names_of(partition: Partition) -> dict[str, sql.Composable]:
    low, high = partition.bounds
    return {
        "name": sql.Identifier(partition.name),
        "parent": sql.Identifier(partition.table),
        "default": sql.Identifier(f"{partition.table}_default"),
        "low": sql.Literal(low),
        "high": sql.Literal(high),
    }


def try_patiently(using: str, work: Callable[[], bool]) -> bool:
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
