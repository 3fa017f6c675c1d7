"""Jobs that wait for the threads of a worker, and for how long."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from django.core.cache import caches
from django.db import connection, connections, transaction
from django.utils import translation

from pulljobs.engine import deadlines
from pulljobs.engine.run_times import RunTime
from pulljobs.handlers import ClaimedJob, Handler
from pulljobs.models import Channel
from pulljobs.states import Event
from pulljobs.worker import thread_connections, thread_pool
from pulljobs.worker.result_buffer import ResultBuffer
from pulljobs.worker.shared_state import IDLE
from pulljobs.worker.thread_pool import ThreadPool
from tests.factories import USING
from tests.sessions import PATIENCE_SECONDS, query, wait_until
from tests.silent import behind, silent_proxy
from tests.worker.claiming import unclaimed


class PoolBench:
    """Thread pool, and the outcomes that it reports."""

    def __init__(self, concurrency: int) -> None:
        self.buffer, self.gate = ResultBuffer(), threading.Event()
        self.slots = [IDLE] * concurrency
        self.pool = ThreadPool(concurrency, self.slots, self.buffer, lambda: None)
        self.pool.start()

    def job(self, function: Callable[[ClaimedJob], Any], **options: Any) -> ClaimedJob:
        job = unclaimed(**options)
        job.handler = Handler(channel="c", consumer="c", function=function)
        return job

    def blocks(self, job: ClaimedJob) -> None:
        assert self.gate.wait(PATIENCE_SECONDS)

    def events(self, count: int) -> list[Event | None]:
        wait_until(lambda: len(self.buffer.results) >= count)
        return [outcome.event if outcome else None for _job, outcome in self.buffer.results]

    def end(self) -> None:
        self.gate.set()
        self.pool.end()
        assert self.pool.join(time.monotonic() + PATIENCE_SECONDS)


@pytest.fixture
def bench() -> Iterator[PoolBench]:
    bench = PoolBench(2)
    yield bench
    bench.end()


def nothing(job: ClaimedJob) -> None:
    """Return at once."""


def test_there_is_room_for_idle_threads_and_no_job_waits_for_slow_ones(
    bench: PoolBench,
) -> None:
    slow = RunTime()
    slow.note(3600)
    assert bench.pool.room(slow) == 2
    bench.pool.take([bench.job(bench.blocks, run_time=slow)])
    wait_until(lambda: bench.slots.count(IDLE) == 1)
    assert bench.pool.room(slow) == 1
    bench.pool.take([bench.job(bench.blocks, number=2, run_time=slow)])
    assert bench.pool.room(slow) == 0, "not even for a job that no thread has taken yet"
    wait_until(lambda: bench.slots.count(IDLE) == 0)
    assert bench.pool.room(slow) == 0


def test_a_handler_does_not_see_context_variables_of_earlier_ones(bench: PoolBench) -> None:
    """A handler sees no context variable of an earlier one, such as its language."""
    seen = list[str]()

    def speak(job: ClaimedJob) -> None:
        seen.append(translation.get_language())
        translation.activate("de")

    bench.pool.take([bench.job(speak, number=number) for number in range(1, 4)])
    assert bench.events(3) == [Event.DELIVER] * 3
    assert seen == ["en-us"] * 3


def test_a_thread_keeps_its_caches_between_jobs() -> None:
    """The jobs of a thread share its caches, and so their connections to Redis or memcached."""
    bench, seen = PoolBench(1), list[Any]()

    def use(job: ClaimedJob) -> None:
        seen.append(caches["default"])

    bench.pool.take([bench.job(use, number=number) for number in range(1, 4)])
    assert bench.events(3) == [Event.DELIVER] * 3
    bench.end()
    assert seen == [seen[0]] * 3


def test_the_run_time_of_a_handler_is_measured(bench: PoolBench) -> None:
    quick = RunTime()
    assert bench.pool.room(quick) == 2, "the run time is unknown yet"
    bench.pool.take([bench.job(nothing, run_time=quick)])
    bench.events(1)
    wait_until(lambda: bench.pool.room(quick) > 2)
    assert quick.expected < 0.5


def test_a_job_that_waited_too_long_for_its_time_limit_is_released(bench: PoolBench) -> None:
    ran: list[int] = []
    late = bench.job(lambda job: ran.append(job.id), start_by=time.monotonic() - 1)
    bench.pool.take([late])
    assert bench.events(1) == [Event.RELEASE]
    assert ran == []


def test_waiting_jobs_are_released_while_no_thread_comes_free(
    bench: PoolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_pool, "LONGEST_STALL", 0.05)
    bench.pool.take([bench.job(bench.blocks, number=number) for number in (1, 2, 3)])
    wait_until(lambda: bench.slots.count(IDLE) == 0)

    def is_released() -> bool:
        bench.pool.check()
        return bool(bench.buffer.results)

    wait_until(is_released)
    assert bench.events(1) == [Event.RELEASE]
    assert bench.pool.room(RunTime()) == 0, "no jobs are claimed to wait"


@pytest.mark.own_session
@pytest.mark.django_db(transaction=True)
def test_a_job_whose_lease_ends_while_connections_are_checked_is_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job whose lease ends during the check of a silent connection is released without a run."""
    monkeypatch.setattr(thread_connections, "ANSWER_SECONDS", 0.6)
    monkeypatch.setattr(deadlines, "GRACE_SECONDS", 0.6)
    bench, ran, silenced = PoolBench(1), [], threading.Event()

    def breaks(job: ClaimedJob) -> None:
        stack.enter_context(behind(proxy)).ensure_connection()
        connection.errors_occurred = True
        proxy.silence()
        silenced.set()

    stack = ExitStack()
    with silent_proxy() as proxy:
        bench.pool.take([bench.job(breaks)])
        assert silenced.wait(PATIENCE_SECONDS)
        bench.pool.take([bench.job(lambda job: ran.append(job.id), number=2, lease_duration=0.4)])
        assert bench.events(2) == [Event.DELIVER, Event.RELEASE]
        assert ran == []
        bench.pool.take([bench.job(lambda job: stack.close(), number=3)])
        bench.end()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", ["atomic", "begin", "autocommit"])
def test_a_transaction_that_a_job_leaves_open_harms_no_later_job_of_the_thread(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A transaction that a job leaves open is rolled back and logged. The next job can commit."""
    bench = PoolBench(1)

    def leaves(job: ClaimedJob) -> None:
        if how == "autocommit":
            transaction.set_autocommit(False, using=USING)
        if how == "atomic":
            transaction.atomic(using=USING).__enter__()
        if how == "begin":
            connections[USING].cursor().execute("BEGIN")
        Channel.objects.create(name="left")

    def writes(job: ClaimedJob) -> None:
        with transaction.atomic(using=USING):
            Channel.objects.create(name=f"kept-{job.id}")

    bench.pool.take([bench.job(leaves), *(bench.job(writes, number=n) for n in (2, 3))])
    assert bench.events(3) == [Event.DELIVER] * 3
    bench.end()
    assert set(Channel.objects.values_list("name", flat=True)) == {"kept-2", "kept-3"}
    assert caplog.messages == [thread_connections.LEFT_OPEN % (1, USING)]


@pytest.mark.django_db(transaction=True)
def test_a_transactional_job_that_leaves_a_block_open_is_retried() -> None:
    """A job that leaves a block open is retried, as its settlement would not be committed."""
    bench = PoolBench(1)
    job = bench.job(lambda job: transaction.atomic(using=USING).__enter__())
    job.handler = replace(job.handler, transactional=True)
    bench.pool.take([job])
    assert bench.events(1) == [Event.RETRY]
    [(_job, outcome)] = bench.buffer.results
    assert outcome is not None
    assert "transaction.atomic() was not left" in str(outcome.error)
    bench.end()


@pytest.mark.own_session
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", ["by the server", "by the job"])
def test_a_connection_that_was_closed_fails_no_job(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No job fails because the server, or a job before it, has closed its thread's connection."""
    monkeypatch.setattr(thread_connections, "AGE_CHECK", math.inf)
    bench, pids = PoolBench(1), list[int]()

    def opens(job: ClaimedJob) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            pids.extend(cursor.fetchone())
        if how == "by the job":
            connection.connection.close()

    bench.pool.take([bench.job(opens)])
    assert bench.events(1) == [Event.DELIVER]
    query("SELECT pg_terminate_backend(%s)", pids)
    wait_until(lambda: not query("SELECT FROM pg_stat_activity WHERE pid = %s", pids))
    bench.pool.take([bench.job(opens, number=2)])
    assert bench.events(2) == [Event.DELIVER] * 2
    bench.end()


@pytest.mark.django_db(transaction=True)
def test_idle_threads_keep_no_connection_beyond_its_age(
    bench: PoolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_pool, "IDLE_CHECK", 0.05)
    opened: list[Any] = []

    def asks(job: ClaimedJob) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        opened.append(connection.connection)

    # Until each thread had a job, it waits by the old IDLE_CHECK.
    meeting = threading.Barrier(2, timeout=PATIENCE_SECONDS)
    bench.pool.take([bench.job(lambda job: meeting.wait(), number=number) for number in (1, 2)])
    bench.events(2)
    bench.pool.take([bench.job(asks, number=3)])
    wait_until(lambda: bool(opened) and opened[0].closed)
