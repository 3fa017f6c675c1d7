"""Other database sessions to build interleavings with, and contents of the tables."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, TypeVar

import psycopg
from django.db import connection, connections

from pulljobs.engine.sql import Row, fetch_rows, statement
from tests.second import as_owner, parameters

PATIENCE_SECONDS: Final = 60
SLACK: Final = float(os.environ.get("PULLJOBS_TEST_SLACK", "20"))
"""Seconds of delay to tolerate on a busy machine, and 0 on an idle machine.

Where a test bounds a time by it, the failure that it guards against takes minutes.
"""
TABLES = (
    "pulljobs_job",
    "pulljobs_lease",
    "pulljobs_archived_job",
    "pulljobs_message",
    "pulljobs_publication",
)
Session = psycopg.Connection[Any]
T = TypeVar("T")


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until the condition is true, and fail after `seconds`.

    The pauses between its calls grow to 50 ms, to leave the processor to slow starts of processes.
    """
    start = time.monotonic()
    while not condition():
        waited = time.monotonic() - start
        assert waited < seconds, "the condition did not become true in time"
        time.sleep(min(0.005 + waited / 20, 0.05))


def wait_for_other_transactions() -> None:
    """Wait for the end of the writing transactions that autovacuum and other databases have now.

    Tests of other processes run in such databases. The lake exports no transaction that began
    after one of those.
    """
    others = "datname <> current_database() OR backend_type = 'autovacuum worker'"
    going_on = (
        "SELECT pid, backend_xid::text, datname, application_name, xact_start, left(query, 100)"
        f" FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND ({others})"
    )
    deadline = time.monotonic() + 6 * PATIENCE_SECONDS
    awaited = {row[:2] for row in query(going_on)}
    while left := [row for row in query(going_on) if row[:2] in awaited]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
        query("SELECT pg_stat_clear_snapshot()")  # a test's transaction takes only one snapshot


FORGET = """
TRUNCATE pulljobs_job, pulljobs_lease, pulljobs_archived_job, pulljobs_message,
    pulljobs_publication, pulljobs_exclusive_key, pulljobs_scheduled_message;
DELETE FROM pg_statistic WHERE starelid::regclass::text LIKE 'pulljobs%'
"""
"""Statements that delete the rows and statistics of earlier tests, on which plans would depend."""


@contextmanager
def session() -> Iterator[Session]:
    """Open another database session, and roll its transaction back at the end unless committed."""
    params = {**parameters(connection.get_connection_params()), "prepare_threshold": None}
    params.pop("cursor_factory", None)
    params.pop("context", None)
    with psycopg.connect(**params) as other:
        yield other
        other.rollback()


def run(other: Session, name: str, params: Mapping[str, Any]) -> list[Row]:
    """Run a statement of pulljobs in another session."""
    with psycopg.Cursor(other) as cursor:
        cursor.execute(statement(name), params, binary=True)
        return fetch_rows(name, cursor)


def query(text: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with as_owner(connection), connection.cursor() as cursor:
        cursor.execute(text, params)
        return cursor.fetchall() if cursor.description else []


@contextmanager
def lock_timeout(after: str = "60s") -> Iterator[None]:
    """Let statements of the block fail that wait for a lock for longer than `after`.

    Behind a pooler this does nothing, because other sessions would get the changed connection.
    """
    if connection.settings_dict["DISABLE_SERVER_SIDE_CURSORS"]:
        yield
        return
    query("SELECT set_config('lock_timeout', %s, false)", [after])
    try:
        yield
    finally:
        query("RESET lock_timeout")


def contents(*tables: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return by table, by default of TABLES, each row with the id of the transaction that wrote it.

    Two results differ even if a row was rewritten with the same values.
    """
    return {
        table: query(f"SELECT xmin::text, t::text FROM {table} AS t ORDER BY 2")
        for table in tables or TABLES
    }


def counts() -> dict[str, int]:
    return {table: query(f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}


def states() -> dict[int, str]:
    return dict(query("SELECT id, state FROM pulljobs_job"))


def pass_time(by: timedelta = timedelta(hours=1)) -> None:
    """Move `leased_until` of all leases back by this time, but not their `hard_end`."""
    query("UPDATE pulljobs_lease SET leased_until = leased_until - %s", [by])


REFUSE: Final = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'not this row' {code};
END $$;
CREATE TRIGGER refuse BEFORE INSERT ON pulljobs_archived_job
FOR EACH ROW WHEN (NEW.job_id = {job_id}) EXECUTE FUNCTION refuse();
"""


def refuse_archiving(job_id: int, code: str = "") -> None:
    """Create a trigger that keeps the job from being delivered and from being DEAD.

    `code` is the clause of RAISE that names the code of its error.
    """
    query(REFUSE.format(job_id=job_id, code=code))


class Thread(threading.Thread):
    """Thread with Django connections of its own. `result` waits and raises the thread's error."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._outcome: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._outcome = self._work()
        except BaseException as error:
            self._error = error
        finally:
            connections.close_all()

    def result(self) -> Any:
        self.join(PATIENCE_SECONDS)
        assert not self.is_alive(), "the thread is still running"
        if self._error is not None:
            raise self._error
        return self._outcome


def at_once(count: int, work: Callable[[int], T]) -> list[T]:
    """Run `work` in `count` threads that start together. Return their results in order."""
    barrier = threading.Barrier(count)

    def start(number: int) -> T:
        connection.ensure_connection()
        barrier.wait(PATIENCE_SECONDS)
        return work(number)

    threads = [Thread(lambda number=number: start(number)) for number in range(count)]  # type: ignore[misc]  # mypy cannot type a default
    return [thread.result() for thread in threads]


def blocked_by(other: Session) -> bool:
    """Return True if some session waits for a lock that `other` holds."""
    [(count,)] = query(
        "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))",
        [backend(other)],
    )
    return bool(count)


def backend(other: Session) -> int:
    row = other.execute("SELECT pg_backend_pid()").fetchone()
    assert row
    return int(row[0])
