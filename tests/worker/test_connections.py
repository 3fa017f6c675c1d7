"""What threads of the worker do to their database connections."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, connections

from pulljobs.storage import statements
from pulljobs.worker.thread_pool import ThreadConnections
from tests.factories import USING
from tests.sessions import Thread

pytestmark = [pytest.mark.own_session, pytest.mark.django_db(transaction=True)]


def test_connection_that_a_job_opened_and_spoilt_is_not_the_next_job_s() -> None:
    """However soon the next one follows: what was opened since the last look is looked at."""
    with ThreadPoolExecutor(1) as thread:
        first, second, third = thread.submit(_three_jobs).result()
    assert first != second
    assert second == third


def test_connection_of_a_loop_is_none_of_django_s_pool_and_those_of_handlers_are() -> None:
    """Who gets it next would have the plans that a loop wants."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connection.settings_dict["OPTIONS"], "pool", {"max_size": 1})
        assert Thread(_loop_has_its_own).result()
        assert Thread(_pool).result()


def _loop_has_its_own() -> bool:
    statements.dedicate(USING)
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
        connection.set_autocommit(False)  # left behind in a transaction
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
