"""Execution of statements on Django's connections.

Django's psycopg connections bind parameters on the client and prepare nothing. Statements that run
here bind them on the server. A prepared statement keeps its plan, and a plan from a time when the
job table was empty would scan the whole table a minute later. So statements that read the job table
keep plans only on dedicated connections, those of a worker's loops, where sequential scans are
disabled, and as the last statements of a transaction (`KEEP_PLAN`). Statements that publish do not
read that table and keep plans on every connection. Nothing is prepared behind a pooler in
transaction mode, which Django's setting `DISABLE_SERVER_SIDE_CURSORS` announces.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import psycopg
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import generators
from psycopg.pq import TransactionStatus

from pulljobs.engine.deadlines import Deadline
from pulljobs.engine.sql import Params, Row, bound, fetch_rows, make_row_type, statement
from pulljobs.storage.plans import INTERPRETED, KEEP_PLAN, can_keep_plan, keeping
from pulljobs.storage.sessions import (
    LONGEST_SECONDS,
    dedicated,
    in_transaction,
    is_in_transaction,
    open_session,
    restart_deadline,
)
from pulljobs.storage.transactions import brief

_thread = threading.local()


def run(
    using: str,
    name: str,
    params: Params,
    *,
    kind: type[tuple[Any, ...]] | None = None,
    always_prepare: bool = False,
    seconds: float | None = None,
    on_sent: Callable[[], None] | None = None,
    interpreted: bool = False,
    keeps_plan: bool = False,
) -> list[Row]:
    """Run the statement file `name` in the caller's transaction and return its rows.

    A row is a named tuple of the statement's columns, or a `kind` if that is given.
    `always_prepare` is for statements that publish: they keep their plans on every connection, and
    are cancelled after a minute (OperationalError). `seconds` is the time after which a statement
    that settles is cancelled (a minute in a loop and in the caller's transaction). `on_sent` is
    called while the server works, and must not use the connection. With `interpreted` the server
    uses no JIT. With `keeps_plan` it keeps the plan of the last statement of a transaction.
    """
    restart_deadline()
    connection = connections[using]  # Once, because each look-up takes 4 µs.
    keeps_plan = keeps_plan and can_keep_plan(connection)
    raw, is_pooled, is_for_loop, errors = open_session(connection)
    prepare = is_for_loop or raw in keeping or keeps_plan or (always_prepare and not is_pooled)
    limit = _limit(connection, raw, LONGEST_SECONDS if always_prepare else seconds)
    with errors, limit, _Preparing(raw, prepare):
        cursor = _cursor(raw, prepare)
        settings = _choose_settings(raw, keeps_plan=keeps_plan, interpreted=interpreted)
        with _pipeline(raw, settings, on_sent):
            for setting in settings:
                psycopg.RawCursor(raw).execute(setting)
            cursor.execute(*bound(statement(name), params), binary=True)
            if on_sent is not None:
                _send(raw)
                on_sent()
        return fetch_rows(name, cursor, kind)


def _choose_settings(
    raw: "psycopg.Connection[Any]", *, keeps_plan: bool, interpreted: bool
) -> list[bytes]:
    """Return the settings to send before a statement: none if the connection has them already."""
    if raw in dedicated or raw in keeping:
        return []
    if keeps_plan:
        return [KEEP_PLAN]
    return [INTERPRETED] if interpreted else []


def _pipeline(
    raw: "psycopg.Connection[Any]",
    settings: Sequence[bytes],
    on_sent: Callable[[], None] | None,
) -> AbstractContextManager[object]:
    """Return psycopg's pipeline mode for `on_sent`, or to send settings and statement together.

    Else return a context manager without effect, as for KEEP_PLAN in an open transaction: there a
    pipeline takes longer than the round trip that it saves.
    """
    is_idle = raw.info.transaction_status == TransactionStatus.IDLE
    is_quicker = INTERPRETED in settings or (settings and is_idle)
    return raw.pipeline() if on_sent or is_quicker else nullcontext()


def query(using: str, text: Any, params: Any = None) -> list[Row]:
    """Run SQL text on Django's cursor and return its rows as named tuples.

    It is for rare statements, which have no statement file: each call creates a class of rows.
    """
    with connections[using].cursor() as cursor:
        cursor.execute(text, params)
        if cursor.description is None:
            return []
        make_row = make_row_type([column.name for column in cursor.description])._make
        return list(map(make_row, cursor.fetchall()))


def run_together(
    using: str, name: str, every: Sequence[Params], *, seconds: float | None = None
) -> list[list[Row]]:
    """Return the rows of a statement for each set of parameters, in one round trip and commit."""
    if len(every) == 1:
        return [run(using, name, every[0], seconds=seconds, keeps_plan=True)]
    restart_deadline()
    connection = connections[using]
    text = statement(name)
    raw, _is_pooled, is_for_loop, errors = open_session(connection)
    prepare = is_for_loop or raw in keeping
    with errors:
        cursors = [psycopg.RawCursor(raw) for _ in every]
        with _limit(connection, raw, seconds), _Preparing(raw, prepare), raw.pipeline():
            for cursor, params in zip(cursors, every, strict=True):
                cursor.execute(*bound(text, params), binary=True)
        return [fetch_rows(name, cursor) for cursor in cursors]


def _send(raw: "psycopg.Connection[Any]") -> None:
    """Send everything that a pipeline has queued, so that the server can work on it.

    psycopg flushes once after each command of a pipeline. What the socket's buffer did not take
    is sent at the end of the pipeline only, and never before `Pipeline.sync()` waits for answers:
    client and server would wait for each other. So no statement here calls `sync()`.
    """
    raw.wait(generators.send(raw.pgconn))


def _limit(
    connection: BaseDatabaseWrapper, raw: "psycopg.Connection[Any]", seconds: float | None
) -> AbstractContextManager[object]:
    """Return the time limit of a statement as a context manager. None sets no limit.

    The limit is a minute, not `seconds`, on a dedicated connection, whose `lock_timeout` is short
    already, and in the caller's transaction, which may have good reasons to wait for a lock.
    """
    if seconds is None:
        return nullcontext()
    is_long = raw in dedicated or is_in_transaction(connection)
    return Deadline(raw, LONGEST_SECONDS if is_long else seconds)


class _Preparing:
    """Context manager in which psycopg prepares statements on their first use, or never.

    It is a class because a generator would be five times slower.
    """

    __slots__ = ("_raw", "_threshold", "_wanted")

    def __init__(self, raw: "psycopg.Connection[Any]", prepare: bool) -> None:
        self._raw, self._threshold = raw, raw.prepare_threshold
        self._wanted = 0 if prepare else None

    def __enter__(self) -> None:
        self._raw.prepare_threshold = self._wanted

    def __exit__(self, *_error: object) -> None:
        self._raw.prepare_threshold = self._threshold


def _cursor(raw: "psycopg.Connection[Any]", prepare: bool) -> "psycopg.RawCursor[Row]":
    """Return a new cursor, or for prepared statements the thread's own: it knows column types."""
    if not prepare:
        return psycopg.RawCursor(raw)
    kept: psycopg.RawCursor[Row] | None = getattr(_thread, "cursor", None)
    if kept is None or kept.connection is not raw:
        kept = _thread.cursor = psycopg.RawCursor(raw)
    return kept


@dataclass(frozen=True, slots=True)
class AliasSession:
    """Django's connection as the `Session` on which functions of the engine run statements."""

    using: str

    def run(self, name: str, params: Params) -> list[Row]:
        is_alone = not in_transaction(self.using)
        return run(self.using, name, params, interpreted=True, keeps_plan=is_alone)

    def atomic(self) -> AbstractContextManager[object]:
        return brief(self.using)
