"""Claims that end in the middle of a step: no failure that the workflow could catch."""

import asyncio
import select
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import DataError, InternalError, OperationalError, connection

from pulljobs.handlers import ClaimedJob
from pulljobs.models import Job
from pulljobs.states import State
from pulljobs.storage import statements
from pulljobs.testing import drain, run_workflow
from pulljobs.workflows import (
    AsyncRun,
    Run,
    interrupting,
    operations,
    signal,
    storing,
)
from pulljobs.workflows.batches import adding
from tests.sessions import session, wait_until
from tests.workflows.runs.conftest import Bench


@pytest.fixture
def fail_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that lets the next run of a statement fail, as a restarted server does."""

    def arm(name: str) -> None:
        left = [name]

        def failing(using: str, name: str, *args: Any, **options: Any) -> Any:
            if name in left:
                left.remove(name)
                raise OperationalError("terminating connection due to administrator command")
            return statements.run(using, name, *args, **options)

        monkeypatch.setattr(storing, "run", failing)

    return arm


def book(run: Run) -> Any:
    with run.atomic("charge") as step:
        step.result = "paid"
    return step.result


CALLS: list[tuple[str, Callable[[Run], Any]]] = [
    ("write_step", lambda run: run.step("charge", lambda: "paid")),
    ("write_step", book),
    ("take_signal", lambda run: run.wait("charge", timedelta(0))),
]


@pytest.mark.parametrize(("statement", "charge"), CALLS)
def test_an_error_of_the_database_is_no_failure_of_a_step(
    bench: Bench, fail_once: Callable[[str], None], statement: str, charge: Callable[[Run], Any]
) -> None:
    def fulfil(run: Run) -> Any:
        try:
            return charge(run)
        except Exception:
            return run.step("refund", lambda: "refund")

    bench.workflow(fulfil)
    signal(bench.start(), "charge", "paid")
    fail_once(statement)
    failed, done = drain(delayed=True)
    assert isinstance(failed.exception, OperationalError)
    assert (failed.job.state, done.job.result) == (State.QUEUED, "paid")


@pytest.mark.django_db(transaction=True)
def test_an_error_of_the_database_is_no_failure_of_an_async_step(
    bench: Bench, fail_once: Callable[[str], None]
) -> None:
    async def fulfil(run: AsyncRun) -> Any:
        try:
            return await run.step("charge", lambda: "paid")
        except Exception:
            return await run.step("refund", lambda: "refund")

    bench.workflow(fulfil)
    bench.start()
    fail_once("write_step")
    failed, done = drain(delayed=True)
    assert isinstance(failed.exception, OperationalError)
    assert done.job.result == "paid"


def test_children_that_the_database_could_not_store_are_published_at_the_next_attempt(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = adding.create
    errors: list[Exception] = [OperationalError("canceling statement due to lock timeout")]

    def create_later(*args: Any, **options: Any) -> Any:
        if errors:
            raise errors.pop()
        return create(*args, **options)

    def split(run: Run) -> Any:
        try:
            return run.gather("parts", [], channel="none") + [run.start("none", 1)]
        except Exception as error:
            return type(error).__name__

    monkeypatch.setattr(adding, "create", create_later)
    bench.workflow(split)
    tested = run_workflow(split)
    assert (tested.claims, tested.result) == (2, "UnknownChannel")


def cut_off() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [pid] = cursor.fetchone()
    with session() as other:
        other.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])


def become_read_only() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")


def become_read_only_and_write() -> None:
    become_read_only()
    Job.objects.update(priority=0)


def wait_too_long() -> None:
    """Let the server end the session with an InternalError."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL idle_in_transaction_session_timeout = '1ms'")
    raw = connection.connection
    wait_until(lambda: bool(select.select([raw.fileno()], [], [], 0)[0]))


@pytest.mark.own_session
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (cut_off, OperationalError),
        (become_read_only, InternalError),
        (become_read_only_and_write, InternalError),
        (wait_too_long, InternalError),
    ],
)
def test_a_block_that_the_database_ends_or_refuses_is_no_failure_of_its_step(
    bench: Bench, trouble: Callable[[], None], kind: type[Exception]
) -> None:
    blocks: list[int] = []

    def fulfil(run: Run) -> Any:
        try:
            with run.atomic("charge") as step:
                blocks.append(1)
                if len(blocks) == 1:
                    trouble()
                step.result = Job.objects.count()
        except Exception:
            return run.step("refund", lambda: "refund")
        return step.result

    bench.workflow(fulfil)
    bench.start()
    failed, done = drain(delayed=True)
    assert isinstance(failed.exception, kind)
    assert (failed.job.state, done.job.result) == (State.QUEUED, 1)


@pytest.mark.own_session
@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_lost_in_a_replayed_block_is_no_failure_of_its_step(
    bench: Bench,
) -> None:
    """The step was done in an earlier claim, so the workflow must not compensate for it."""
    blocks: list[int] = []

    def fulfil(run: Run) -> Any:
        try:
            with run.atomic("charge") as step:
                blocks.append(1)
                if len(blocks) == 2:
                    cut_off()
                Job.objects.count()
                step.result = "paid"
        except Exception:
            return run.step("refund", lambda: "refund")
        run.sleep("nap", timedelta(hours=1))
        return step.result

    bench.workflow(fulfil)
    bench.start()
    _slept, failed, done = drain(delayed=True)
    assert isinstance(failed.exception, OperationalError)
    assert (failed.job.state, done.job.result) == (State.QUEUED, "paid")


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_the_block_has_broken_is_a_failure_of_its_step(bench: Bench) -> None:
    def fulfil(run: Run) -> Any:
        try:
            with run.atomic("charge"), connection.cursor() as cursor, suppress(DataError):
                cursor.execute("SELECT 1 / 0")
        except Exception:
            return run.step("refund", lambda: "refund")

    bench.workflow(fulfil)
    bench.start()
    [done] = drain()
    assert done.job.result == "refund"


def test_a_step_with_retries_left_goes_on_after_a_stop(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step with a retry left that fails as the worker stops is called again by the next claim."""
    calls: list[int] = []

    def charge() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ZeroDivisionError
        return "paid"

    def fulfil(run: Run) -> Any:
        try:
            return run.step("charge", charge, retries=1)
        except ZeroDivisionError:
            return run.step("refund", lambda: "refund")

    monkeypatch.setattr(ClaimedJob, "stopping", property(lambda job: len(calls) == 1))
    bench.workflow(fulfil)
    bench.start()
    stopped, done = drain()
    assert (stopped.job.state, stopped.job.retry_count) == (State.QUEUED, 0)
    assert done.job.result == "paid"


def test_an_interruption_that_the_code_swallows_kills_no_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def charge() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ZeroDivisionError

    def fulfil(run: Run) -> Any:
        try:
            run.step("charge", charge, retries=1)
        except:  # noqa: E722
            return "refund"
        return "paid"

    monkeypatch.setattr(ClaimedJob, "stopping", property(lambda job: len(calls) == 1))
    bench.workflow(fulfil)
    bench.start()
    _stopped, done = drain()
    assert done.job.result == "paid"


@pytest.mark.django_db(transaction=True)
def test_the_time_limit_of_a_plain_step_begins_with_its_function(bench: Bench) -> None:
    """A step's time limit does not count its wait for the thread that plain functions share."""

    async def fulfil(run: AsyncRun) -> Any:
        return await asyncio.gather(
            run.step("slow", lambda: time.sleep(1.5)),
            run.step("quick", lambda: "paid", timeout=timedelta(seconds=1)),
        )

    bench.workflow(fulfil)
    tested = run_workflow(fulfil)
    assert (tested.claims, tested.result) == (1, [None, "paid"])


@pytest.mark.django_db(transaction=True)
def test_a_plain_step_of_an_async_run_is_timed_out(bench: Bench) -> None:
    async def fulfil(run: AsyncRun) -> Any:
        try:
            return await run.step("slow", lambda: time.sleep(0.2), timeout=timedelta(seconds=0.05))
        except TimeoutError:
            return "too late"

    bench.workflow(fulfil)
    assert run_workflow(fulfil).result == "too late"


class Clock:
    """Clock that a test sets forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


@pytest.mark.parametrize("slow", [1, 3])
def test_a_plain_step_over_its_time_limit_is_timed_out(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, slow: int
) -> None:
    """A plain step over its time limit is called again, and ends the run DEAD if it stays slow."""
    calls, clock = list[int](), Clock()

    def charge() -> str:
        calls.append(1)
        if len(calls) <= slow:
            clock.ahead += 1_000
        return "paid"

    def fulfil(run: Run) -> Any:
        try:
            return run.step("charge", charge, timeout=timedelta(seconds=1_000))
        except Exception:
            return "refund"

    for module in (operations, interrupting):
        monkeypatch.setattr(module, "time", clock)
    bench.workflow(fulfil)
    tested = run_workflow(fulfil)
    if slow == 1:
        assert (tested.claims, tested.result) == (2, "paid")
    else:
        assert tested.state == State.DEAD
        assert str(tested.error).startswith("TimeoutError: step 'charge' ran for 1000.")
