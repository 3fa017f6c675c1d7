"""Plans that the server keeps for the last statements of a transaction, on any connection."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakSet

import psycopg
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from pulljobs.storage.sessions import dedicated, is_behind_pooler, raw_connection

INTERPRETED: Final = b"SELECT set_config('jit', 'off', true)"
"""Statement that lets the transaction's claims run without the server's compiler.

The planner expects many rows of a consumer with many priorities, and would compile the claim: that
takes two seconds, and the claim less than a millisecond.
"""
KEEP_PLAN: Final = (
    b"SELECT set_config('enable_seqscan', 'off', true),"
    b" set_config('enable_bitmapscan', 'off', true),"
    b" set_config('plan_cache_mode', 'force_generic_plan', true), set_config('jit', 'off', true)"
)
"""Statement that lets the last statements of a transaction keep their plans on any connection.

To plan such a statement takes three times as long as to execute it. The plans scan no table. The
settings are those of PLAN_FOR_QUEUES.
"""

keeping: WeakSet[psycopg.Connection[Any]] = WeakSet()
"""Connections in whose open transaction all further statements keep their plans."""


def can_keep_plan(connection: BaseDatabaseWrapper) -> bool:
    """Return True if the current block or statement ends its transaction, and no pooler is used."""
    if connection.in_atomic_block:
        is_last = connection.commit_on_exit and len(connection.atomic_blocks) == 1
    else:
        is_last = connection.autocommit
    return is_last and not is_behind_pooler(connection)


@contextmanager
def keeping_plans(using: str) -> Iterator[None]:
    """Let the server keep the plans of the block's statements, the last of their transaction.

    It then need not plan them again. Nothing is changed if the transaction goes on after the
    current `atomic` block.
    """
    connection = connections[using]
    raw = raw_connection(using)
    if raw in dedicated or not can_keep_plan(connection):
        yield
        return
    with connection.wrap_database_errors:
        raw.execute(KEEP_PLAN)
    keeping.add(raw)
    try:
        yield
    finally:
        keeping.discard(raw)


def ends_transaction(using: str) -> bool:
    """Return True if the open transaction ends with the current block of `keeping_plans`."""
    return raw_connection(using) in keeping
