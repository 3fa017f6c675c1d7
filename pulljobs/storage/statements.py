"""Execution of statements on Django's connections.

Django's psycopg connections bind parameters on the client and prepare nothing. Statements that run
here bind them on the server. A prepared statement keeps its plan, and a plan from a time when the
job table was empty would scan the whole table a minute later. So statements that read the job table
keep plans only on dedicated connections, those of a worker's loops, where sequential scans are
disabled, and as the last statements of a transaction (`KEEP_PLAN`). Statements that publish do not
read that table and keep plans on every connection. Nothing is prepared behind a pooler in
transaction mode, which Django's setting `DISABLE_SERVER_SIDE_CURSORS` announces.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeVar, cast
from weakref import WeakSet

import psycopg
from django.db import Error, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import generators
from psycopg.pq import TransactionStatus

from pulljobs.engine.connection_bounds import with_bounds
from pulljobs.engine.deadlines import Deadline, WorkDeadline
from pulljobs.engine.sql import Params, Row, bound, fetch_rows, make_row_type, statement

logger = logging.getLogger("pulljobs.storage")

T = TypeVar("T")

# Generic plans, because the planner sees nothing in the parameters.
PLAN_FOR_QUEUES: Final = (
    "SET enable_seqscan = off; SET enable_bitmapscan = off; "
    "SET plan_cache_mode = force_generic_plan; SET jit = off"
)
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
LOCK_SECONDS: Final = 2.0
"""Longest wait for a lock of a dedicated connection, and of statements that settle jobs elsewhere.

Loops of a worker hang on no lock: a statement that waits longer fails, and the loop tries again.
"""
LIMIT_WAITS: Final = f"SET lock_timeout = '{LOCK_SECONDS} s'"
SILENCE: Final = timedelta(seconds=10)
"""Time after which the server ends a transaction of pulljobs that sends no statement."""
SET_LIMITS: Final = (
    "SELECT set_config(name, value, {is_local}) FROM (VALUES {values}) AS setting (name, value)"
    " WHERE current_setting(name)::interval NOT BETWEEN '1 ms' AND value::interval"
)
"""Statement that limits settings which have no limit or a higher one."""
ATTEMPTS: Final = 5
CONFLICTS: Final = psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure
LONGEST_SECONDS: Final = 60.0
"""Longest time limit of statements that publish and settle. Locks are held for less."""
LOOP_SECONDS: Final = 30.0
"""Time limit of a statement in a loop, after which the connection is closed."""

_thread = threading.local()
_dedicated: WeakSet[psycopg.Connection[Any]] = WeakSet()
_relaxed: WeakSet[psycopg.Connection[Any]] = WeakSet()
_keeping: WeakSet[psycopg.Connection[Any]] = WeakSet()
"""Connections in whose open transaction all further statements keep their plans."""


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
    """Bound each statement and commit of the block, one pass of a loop, to `seconds`."""
    deadline = _thread.deadline = WorkDeadline(connections[using], seconds)
    try:
        with deadline:
            yield
    finally:
        _thread.deadline = None


def relax(using: str, is_relaxed: bool) -> None:
    """Switch `synchronous_commit` off on the connection that `dedicate` reserved, or on again.

    While it is off, commits return before they are on disk: a crash of the server may lose them.
    """
    raw = raw_connection(using)
    if is_relaxed == (raw in _relaxed) or raw not in _dedicated:
        return
    raw.execute(f"SET synchronous_commit = {'off' if is_relaxed else 'DEFAULT'}")
    _relaxed.discard(raw)
    if is_relaxed:
        _relaxed.add(raw)


def behind_pooler(using: str) -> bool:
    """Return True if a pooler in transaction mode is between this process and the server."""
    return _is_behind_pooler(connections[using])


def _is_behind_pooler(connection: BaseDatabaseWrapper) -> bool:
    return bool(connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"))


def run(
    using: str,
    name: str,
    params: Params,
    *,
    kind: type[tuple[Any, ...]] | None = None,
    always_prepare: bool = False,
    seconds: float | None = None,
    meanwhile: Callable[[], None] | None = None,
    interpreted: bool = False,
    keeps_plan: bool = False,
) -> list[Row]:
    """Run the statement file `name` in the caller's transaction and return its rows.

    A row is a named tuple of the statement's columns, or a `kind` if that is given.
    `always_prepare` is for statements that publish: they keep their plans on every connection, and
    are cancelled after a minute (OperationalError). `seconds` is the time after which a statement
    that settles is cancelled (a minute in a loop and in the caller's transaction). `meanwhile` is
    called while the server works, and must not use the connection. With `interpreted` the server
    uses no JIT. With `keeps_plan` it keeps the plan of the last statement of a transaction.
    """
    _restart_deadline()
    connection = connections[using]  # Once, because each look-up takes 4 µs.
    keeps_plan = keeps_plan and _keeps_plan(connection)
    ready = _ready(connection, always_prepare or keeps_plan)
    limit = _limit(connection, ready, LONGEST_SECONDS if always_prepare else seconds)
    with ready.errors, limit, _Preparing(ready):
        cursor, settings = _cursor(ready), []
        if ready.raw not in _dedicated and ready.raw not in _keeping:
            settings += [KEEP_PLAN] if keeps_plan else [INTERPRETED] if interpreted else []
        with _pipeline(ready, settings, meanwhile):
            for setting in settings:
                psycopg.RawCursor(ready.raw).execute(setting)
            cursor.execute(*bound(statement(name), params), binary=True)
            if meanwhile is not None:
                _send(ready.raw)
                meanwhile()
        return fetch_rows(name, cursor, kind)


def in_transaction(using: str) -> bool:
    """Return True if the caller has a transaction open, or commits by hand (no autocommit)."""
    return _is_in_transaction(connections[using])


def _is_in_transaction(connection: BaseDatabaseWrapper) -> bool:
    is_open = connection.connection is not None
    commits = connection.autocommit if is_open else connection.settings_dict["AUTOCOMMIT"]
    return connection.in_atomic_block or not commits


def _keeps_plan(connection: BaseDatabaseWrapper) -> bool:
    """Return True if the next statement is the last of its transaction, and no pooler is used."""
    if connection.in_atomic_block:
        is_last = connection.commit_on_exit and len(connection.atomic_blocks) == 1
    else:
        is_last = connection.autocommit
    return is_last and not _is_behind_pooler(connection)


@contextmanager
def keeping_plans(using: str) -> Iterator[None]:
    """Let the server keep the plans of the block's statements, the last of their transaction.

    It then need not plan them again. In a transaction of the caller's nothing is changed.
    """
    connection = connections[using]
    raw = raw_connection(using)
    if raw in _dedicated or not _keeps_plan(connection):
        yield
        return
    with connection.wrap_database_errors:
        raw.execute(KEEP_PLAN)
    _keeping.add(raw)
    try:
        yield
    finally:
        _keeping.discard(raw)


def ends_transaction(using: str) -> bool:
    """Return True in a block of `keeping_plans`: the open transaction ends with that block."""
    return raw_connection(using) in _keeping


def _pipeline(
    ready: "_Ready", settings: Sequence[bytes], meanwhile: Callable[[], None] | None
) -> AbstractContextManager[object]:
    """Return psycopg's pipeline mode, to send settings and statement together, where it is faster.

    Else return a context manager without effect: in an open transaction, a pipeline takes longer
    than the round trip of a setting that it saves.
    """
    is_idle = ready.raw.info.transaction_status == TransactionStatus.IDLE
    is_quicker = INTERPRETED in settings or (settings and is_idle)
    return ready.raw.pipeline() if meanwhile or is_quicker else nullcontext()


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
    """Return the rows of a statement for each of the parameters, in one round trip and commit."""
    if len(every) == 1:
        return [run(using, name, every[0], seconds=seconds, keeps_plan=True)]
    _restart_deadline()
    connection = connections[using]
    text, ready = statement(name), _ready(connection, always_prepare=False)
    with ready.errors:
        cursors = [psycopg.RawCursor(ready.raw) for _ in every]
        with _limit(connection, ready, seconds), _Preparing(ready), ready.raw.pipeline():
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


def is_wait(error: Exception) -> bool:
    """Return True if a time limit caused the error: of a wait for a lock, or of a statement."""
    causes = psycopg.errors.LockNotAvailable | psycopg.errors.QueryCanceled
    return isinstance(error.__cause__, causes)


class _Ready(NamedTuple):
    """Open connection, and whether statements on it are prepared."""

    raw: "psycopg.Connection[Any]"
    prepare: bool
    errors: AbstractContextManager[object]
    """Context manager that turns psycopg's errors into Django's."""


def _ready(connection: BaseDatabaseWrapper, always_prepare: bool) -> _Ready:
    connection.close_if_health_check_failed()
    if connection.connection is None:
        connection.ensure_connection()
    connection.validate_no_broken_transaction()
    raw = cast("psycopg.Connection[Any]", connection.connection)
    pooled = _is_behind_pooler(connection)
    dedicated = not pooled and _is_loop(connection.alias)
    if dedicated:
        _set_up(connection, raw)
    prepare = dedicated or raw in _keeping or (always_prepare and not pooled)
    return _Ready(raw, prepare, connection.wrap_database_errors)


def _is_loop(using: str) -> bool:
    """Return True if this thread has called `dedicate` for the alias."""
    return getattr(_thread, "dedicated", None) == using


def _set_up(connection: BaseDatabaseWrapper, raw: "psycopg.Connection[Any]") -> None:
    """Apply the settings of a dedicated connection, unless it has them."""
    if raw in _dedicated:
        return
    with connection.wrap_database_errors:
        raw.execute(PLAN_FOR_QUEUES)
        raw.execute(LIMIT_WAITS)
        raw.execute(_set_limits(is_local=False))
    if not in_transaction(connection.alias):  # else a rollback may take it back
        _dedicated.add(raw)


def _execute_in_loop(
    execute: Callable[..., Any], text: Any, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    """Apply the settings of a dedicated connection before Django's cursor executes a statement."""
    connection = context["connection"]
    _restart_deadline()
    if not _is_behind_pooler(connection):
        _set_up(connection, connection.connection)
    return execute(text, params, many, context)


def _restart_deadline() -> None:
    if (deadline := getattr(_thread, "deadline", None)) is not None:
        deadline.restart()


def _limit(
    connection: BaseDatabaseWrapper, ready: _Ready, seconds: float | None
) -> AbstractContextManager[object]:
    """Return the time limit of a statement as a context manager. None sets no limit.

    The limit is a minute, not `seconds`, on a dedicated connection, whose `lock_timeout` is short
    already, and in the caller's transaction, which may have good reasons to wait for a lock.
    """
    if seconds is None:
        return nullcontext()
    is_long = ready.raw in _dedicated or _is_in_transaction(connection)
    return Deadline(ready.raw, LONGEST_SECONDS if is_long else seconds)


class _Preparing:
    """Context manager in which psycopg prepares statements on their first use, or never.

    It is a class because a generator would be five times slower.
    """

    __slots__ = ("_raw", "_threshold", "_wanted")

    def __init__(self, ready: _Ready) -> None:
        self._raw, self._threshold = ready.raw, ready.raw.prepare_threshold
        self._wanted = 0 if ready.prepare else None

    def __enter__(self) -> None:
        self._raw.prepare_threshold = self._wanted

    def __exit__(self, *_error: object) -> None:
        self._raw.prepare_threshold = self._threshold


def _cursor(ready: _Ready) -> "psycopg.RawCursor[Row]":
    """Return a cursor, for prepared statements that of the thread, which knows column types."""
    if not ready.prepare:
        return psycopg.RawCursor(ready.raw)
    kept: psycopg.RawCursor[Row] | None = getattr(_thread, "cursor", None)
    if kept is None or kept.connection is not ready.raw:
        kept = _thread.cursor = psycopg.RawCursor(ready.raw)
    return kept


@contextmanager
def brief(using: str, *, lock_seconds: float = LONGEST_SECONDS) -> Iterator[None]:
    """Open a transaction that the server ends if its client sends nothing for ten seconds.

    Otherwise a process that is suspended in the transaction, or whose host crashes, would keep its
    locks until TCP notices, which takes hours. Statements wait at most `lock_seconds` for a lock,
    or LOCK_SECONDS in a loop. Inside the caller's transaction this is a savepoint without limits.
    """
    connection = connections[using]
    if not connection.in_atomic_block:
        _ready(connection, always_prepare=False)
    is_callers = _is_in_transaction(connection)
    with transaction.atomic(using=using):
        raw = raw_connection(using)
        if not is_callers and raw not in _dedicated:
            seconds = LOCK_SECONDS if _is_loop(using) else lock_seconds
            with connection.wrap_database_errors:
                raw.execute(_set_limits(is_local=True, lock_seconds=seconds))
        yield


def _set_limits(*, is_local: bool, lock_seconds: float | None = None) -> bytes:
    limits = {"idle_in_transaction_session_timeout": SILENCE.total_seconds()}
    if lock_seconds is not None:
        limits["lock_timeout"] = lock_seconds
    values = ", ".join(f"('{name}', '{seconds * 1000:.0f}ms')" for name, seconds in limits.items())
    return SET_LIMITS.format(values=values, is_local=is_local).encode()


def call_on_commit(using: str, work: Callable[[], object]) -> None:
    """Call `work` after the commit of the caller's transaction, or at once if there is none.

    Its exceptions are logged. If the caller commits by hand, Django reports no commit, and `work`
    is not called: so it may only be work that a loop of a worker does later in any case.
    """
    connection = connections[using]
    if connection.in_atomic_block or connection.get_autocommit():
        # Robust: it comes after the commit, and must not look as if that had failed.
        transaction.on_commit(work, using=using, robust=True)


@contextmanager
def after_commit(using: str, what: str) -> Iterator[None]:
    """Log a database error of the block, because the commit before it has succeeded.

    `what` names the block's task in the log. Inside the caller's transaction nothing is committed
    yet, and the error is raised.
    """
    try:
        yield
    except Error as error:
        if in_transaction(using):
            raise
        logger.warning("After a commit, %s failed: %s", what, str(error).partition("\n")[0])


@dataclass(frozen=True, slots=True)
class AliasSession:
    """Django's connection as the `Session` on which functions of the engine run statements."""

    using: str

    def run(self, name: str, params: Params) -> list[Row]:
        is_alone = not in_transaction(self.using)
        return run(self.using, name, params, interpreted=True, keeps_plan=is_alone)

    def atomic(self) -> AbstractContextManager[object]:
        return brief(self.using)


def raw_connection(using: str) -> "psycopg.Connection[Any]":
    """Return this thread's psycopg connection, which is another object after a reconnect."""
    connection = connections[using]
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    return cast("psycopg.Connection[Any]", connection.connection)


def retrying(using: str, work: Callable[[], T]) -> T:
    """Call `work` and return its result, up to five times after deadlocks and serialization errors.

    Inside the caller's transaction it is called once, because only the whole transaction could be
    repeated.
    """
    for attempt in range(1, ATTEMPTS):
        try:
            return work()
        except OperationalError as error:
            if in_transaction(using) or not isinstance(error.__cause__, CONFLICTS):
                raise
            logger.info("Attempt %d lost a conflict over locks; trying again.", attempt)
    return work()
