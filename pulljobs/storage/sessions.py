"""Database sessions of threads: dedicated ones for loops, their settings and their time limits.

A dedicated session has settings for the plans of statements that read the job table, and waits for
no lock for long. Django's connection holds the session, also after a reconnect.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any, Final, NamedTuple, cast
from weakref import WeakSet

import psycopg
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from pulljobs.engine.connection_bounds import with_bounds
from pulljobs.engine.deadlines import WorkDeadline

# Generic plans, because the planner sees nothing in the parameters.
PLAN_FOR_QUEUES: Final = (
    "SET enable_seqscan = off; SET enable_bitmapscan = off; "
    "SET plan_cache_mode = force_generic_plan; SET jit = off"
)
LOCK_SECONDS: Final = 2.0
"""Longest wait for a lock of a dedicated connection, and of statements that settle jobs elsewhere.

Loops of a worker hang on no lock: a statement that waits longer fails, and the loop tries again.
"""
LIMIT_WAITS: Final = f"SET lock_timeout = '{LOCK_SECONDS} s'"
LONGEST_SECONDS: Final = 60.0
"""Longest time limit of statements that publish and settle. Locks are held for less."""
LOOP_SECONDS: Final = 30.0
"""Time limit of a statement in a loop, after which it is cancelled or its connection cut."""
SILENCE: Final = timedelta(seconds=10)
"""Time after which the server ends a transaction of pulljobs that sends no statement."""
SET_LIMITS: Final = (
    "SELECT set_config(name, value, {is_local}) FROM (VALUES {values}) AS setting (name, value)"
    " WHERE current_setting(name)::interval NOT BETWEEN '1 ms' AND value::interval"
)
"""Statement that limits settings which have no limit or a higher one."""

_thread = threading.local()
dedicated: WeakSet[psycopg.Connection[Any]] = WeakSet()
"""Connections with the settings of dedicated ones, which no rollback takes back."""
_relaxed: WeakSet[psycopg.Connection[Any]] = WeakSet()


def dedicate(using: str) -> None:
    """Reserve this thread's connection for a loop of a worker, which makes it dedicated.

    A dedicated connection has settings for plans and locks. It is not taken from Django's `pool`,
    whose next user would get these settings. It is closed if the server does not answer, after
    times that the options of the database may set.
    """
    _thread.dedicated = using
    connection = connections[using]
    options = with_bounds(connection.settings_dict["OPTIONS"])
    if options.get("pool"):
        options["pool"] = False
    connection.settings_dict = {**connection.settings_dict, "OPTIONS": options}
    if _execute_in_loop not in connection.execute_wrappers:
        connection.execute_wrappers.append(_execute_in_loop)


@contextmanager
def bounded_pass(using: str, seconds: float = LOOP_SECONDS) -> Iterator[None]:
    """Cancel each statement or commit of the block, one pass of a loop, after `seconds`."""
    deadline = _thread.deadline = WorkDeadline(connections[using], seconds)
    try:
        with deadline:
            yield
    finally:
        _thread.deadline = None


def relax(using: str, is_relaxed: bool) -> None:
    """Switch `synchronous_commit` off on this thread's dedicated connection, or to its default.

    While it is off, commits return before they are on disk: a crash of the server may lose them.
    """
    raw = raw_connection(using)
    if is_relaxed == (raw in _relaxed) or raw not in dedicated:
        return
    raw.execute(f"SET synchronous_commit = {'off' if is_relaxed else 'DEFAULT'}")
    _relaxed.discard(raw)
    if is_relaxed:
        _relaxed.add(raw)


def behind_pooler(using: str) -> bool:
    """Return True if a pooler in transaction mode is between this process and the server."""
    return is_behind_pooler(connections[using])


def is_behind_pooler(connection: BaseDatabaseWrapper) -> bool:
    """Return True if the connection goes to a pooler in transaction mode, by its settings."""
    return bool(connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"))


def in_transaction(using: str) -> bool:
    """Return True if the caller has a transaction open, or commits by hand (no autocommit)."""
    return is_in_transaction(connections[using])


def is_in_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Return True if a transaction is open on the connection, or autocommit is off."""
    is_open = connection.connection is not None
    commits = connection.autocommit if is_open else connection.settings_dict["AUTOCOMMIT"]
    return connection.in_atomic_block or not commits


class OpenSession(NamedTuple):
    """Open connection of this thread to the server."""

    raw: "psycopg.Connection[Any]"
    is_pooled: bool
    """True behind a pooler in transaction mode, where nothing is prepared."""
    is_for_loop: bool
    """True if the connection has the settings of a dedicated one."""
    errors: AbstractContextManager[object]
    """Context manager that turns psycopg's errors into Django's."""


def open_session(connection: BaseDatabaseWrapper) -> OpenSession:
    """Return the session of a connection, which connects first if necessary.

    In the thread of a loop, apply the settings of a dedicated connection.
    """
    connection.close_if_health_check_failed()
    if connection.connection is None:
        connection.ensure_connection()
    connection.validate_no_broken_transaction()
    raw = cast("psycopg.Connection[Any]", connection.connection)
    is_pooled = is_behind_pooler(connection)
    is_for_loop = not is_pooled and is_loop(connection.alias)
    if is_for_loop:
        _set_up(connection, raw)
    return OpenSession(raw, is_pooled, is_for_loop, connection.wrap_database_errors)


def is_loop(using: str) -> bool:
    """Return True if this thread has dedicated its connection of the alias to a loop."""
    return getattr(_thread, "dedicated", None) == using


def _set_up(connection: BaseDatabaseWrapper, raw: "psycopg.Connection[Any]") -> None:
    """Apply the settings of a dedicated connection, unless it has them."""
    if raw in dedicated:
        return
    with connection.wrap_database_errors:
        raw.execute(PLAN_FOR_QUEUES)
        raw.execute(LIMIT_WAITS)
        raw.execute(format_limits(is_local=False))
    if not in_transaction(connection.alias):  # else a rollback may take it back
        dedicated.add(raw)


def _execute_in_loop(
    execute: Callable[..., Any], text: Any, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    """Execute a statement of Django's cursor with the settings of a dedicated connection.

    First restart the time limit of the pass. Behind a pooler, no settings are applied.
    """
    connection = context["connection"]
    restart_deadline()
    if not is_behind_pooler(connection):
        _set_up(connection, connection.connection)
    return execute(text, params, many, context)


def restart_deadline() -> None:
    """Restart the time limit of the pass that this thread runs, if `bounded_pass` set one."""
    if (deadline := getattr(_thread, "deadline", None)) is not None:
        deadline.restart()


def format_limits(*, is_local: bool, lock_seconds: float | None = None) -> bytes:
    """Return SQL that limits the idle time in a transaction and, by `lock_seconds`, lock waits."""
    limits = {"idle_in_transaction_session_timeout": SILENCE.total_seconds()}
    if lock_seconds is not None:
        limits["lock_timeout"] = lock_seconds
    values = ", ".join(f"('{name}', '{seconds * 1000:.0f}ms')" for name, seconds in limits.items())
    return SET_LIMITS.format(values=values, is_local=is_local).encode()


def raw_connection(using: str) -> "psycopg.Connection[Any]":
    """Return this thread's psycopg connection, which is another object after a reconnect."""
    connection = connections[using]
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    return cast("psycopg.Connection[Any]", connection.connection)
