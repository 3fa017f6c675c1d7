"""Database connections of the worker's threads."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, connections

from pulljobs.engine import deadlines
from pulljobs.storage import sessions, statements
from pulljobs.worker import thread_connections
from pulljobs.worker.thread_connections import ThreadConnections
from tests.factories import USING
from tests.sessions import Thread
from tests.silent import behind, silent_proxy

pytestmark = [pytest.mark.own_session, pytest.mark.django_db(transaction=True)]


def test_the_next_job_does_not_get_a_connection_that_a_job_has_opened_and_broken() -> None:
    """A connection that a job has opened is checked before the next job, however soon that is."""
    with ThreadPoolExecutor(1) as thread:
        first, second, third = thread.submit(_three_jobs).result()
    assert first != second
    assert second == third


def test_loops_do_not_use_the_connection_pool_of_django_and_handlers_do() -> None:
    """Loops open connections of their own, and handlers use the connection pool of Django."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connection.settings_dict["OPTIONS"], "pool", {"max_size": 1})
        assert Thread(_loop_has_its_own).result()
        assert Thread(_pool).result()


def test_a_silent_connection_keeps_no_thread_from_the_next_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(thread_connections, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(deadlines, "GRACE_SECONDS", 0.3)

    def check() -> object:
        with behind(proxy) as wrapper:
            kept = ThreadConnections()
            wrapper.ensure_connection()
            wrapper.errors_occurred = True
            proxy.silence()
            kept.check(time.monotonic())
            return wrapper.connection

    with silent_proxy() as proxy:
        assert Thread(check).result() is None


def test_queries_that_django_logs_with_debug_are_forgotten_after_each_job() -> None:
    """A thread forgets the queries of a job before the next job. Django would keep up to 9,000."""
    assert Thread(_count_logged).result() == (1, 0)


def _count_logged() -> tuple[int, int]:
    kept, opened = ThreadConnections(), connections[USING]
    opened.force_debug_cursor = True
    try:
        with opened.cursor() as cursor:
            cursor.execute("SELECT 1")
        logged = len(opened.queries)
        kept.check(time.monotonic())
        return logged, len(opened.queries)
    finally:
        connections.close_all()


def _loop_has_its_own() -> bool:
    sessions.dedicate(USING)
    try:
        statements.run(USING, "server", {})
        return not _pool()
    finally:
        connections.close_all()


def _pool() -> object:
    return connections[USING].settings_dict["OPTIONS"]["pool"]


def _three_jobs() -> tuple[int, int, int]:
    kept = ThreadConnections()
    try:
        kept.check(time.monotonic())
        first = _backend()
        connection.set_autocommit(False)  # Left in a transaction.
        kept.check(time.monotonic())
        second = _backend()
        kept.check(time.monotonic())
        return first, second, _backend()
    finally:
        connections.close_all()


def _backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [pid] = cursor.fetchone()
    return int(pid)
