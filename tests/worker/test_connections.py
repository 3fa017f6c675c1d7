"""What a thread of the worker does to its database connections between two jobs."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, connections

from pulljobs.worker.pool import Connections

pytestmark = [pytest.mark.own_session, pytest.mark.django_db(transaction=True)]


def test_connection_that_a_job_opened_and_spoilt_is_not_the_next_job_s() -> None:
    """However soon the next one follows: what was opened since the last look is looked at."""
    with ThreadPoolExecutor(1) as thread:
        first, second, third = thread.submit(_three_jobs).result()
    assert first != second
    assert second == third


def _three_jobs() -> tuple[int, int, int]:
    kept = Connections()
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
