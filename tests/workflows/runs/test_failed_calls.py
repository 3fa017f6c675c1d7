"""Failed calls of a run: a caught failure is stored, so that each replay goes the same way."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import MagicMock

import pytest
from django.contrib.auth.models import Group, Permission
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from pulljobs.errors import Discard, Snooze, StepMismatch, UnknownChannel, WorkflowError
from pulljobs.models import Job
from pulljobs.states import State
from pulljobs.storage import nodes
from pulljobs.testing import drain, run_workflow
from pulljobs.workflows import AsyncRun, Run, redrive
from pulljobs.workflows.models import WorkflowStep
from tests.factories import USING
from tests.sessions import SLACK
from tests.workflows.runs.conftest import Bench


def test_the_key_after_a_caught_failure_is_the_same_at_each_attempt(bench: Bench) -> None:
    keys: list[str] = []

    def pay(run: Run) -> None:
        for card in ("declined", "good"):
            try:
                run.step("charge", charge, run.key("charge"), card)
            except ZeroDivisionError:
                continue
        run.step("end", lambda: None)

    def charge(key: str, card: str) -> None:
        keys.append(key)
        if card == "declined":
            raise ZeroDivisionError
        if len(keys) == 2:
            raise SystemExit

    bench.workflow(pay)
    bench.start()
    assert len(drain(delayed=True)) == 2
    first, *others = (key.rpartition(":")[2] for key in keys)
    assert (first, others) == ("1", ["2", "2"])


@pytest.mark.parametrize("result", [object(), "x" * 20_000])
def test_a_caught_result_that_can_not_be_stored_is_a_failure(bench: Bench, result: object) -> None:
    calls: list[int] = []

    def produce() -> object:
        calls.append(1)
        return result

    def export(run: Run) -> None:
        with suppress(TypeError, ValueError):
            run.step("export", produce)
        run.sleep("night", timedelta(hours=8))

    bench.workflow(export)
    bench.start()
    drain(delayed=True)
    assert len(calls) == 1
    assert not Job.objects.exists()


def test_a_caught_refusal_of_children_is_stored(bench: Bench) -> None:
    def split(run: Run) -> Any:
        for start in (lambda: run.gather("parts", [1]), lambda: run.start("parts", 1)):
            try:
                start()
            except UnknownChannel as error:
                run.sleep(f"before {error.channel}", timedelta(hours=8))
        return "no channel"

    bench.workflow(split)
    tested = run_workflow(split)
    assert (tested.state, tested.result) == (State.DELIVERED, "no channel")
    assert tested.steps == ["parts", "before parts", "start parts", "before parts"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("call", ["step", "sleep", "continue_as"])
def test_a_call_inside_a_transaction_is_refused_before_its_effect(bench: Bench, call: str) -> None:
    effects: list[int] = []
    calls = {
        "step": lambda run: run.step("charge", effects.append, 1),
        "sleep": lambda run: run.sleep("night", timedelta(hours=8)),
        "continue_as": lambda run: run.continue_as({}),
    }

    def inside(run: Run) -> None:
        with transaction.atomic():
            Group.objects.create(name="lost")
            calls[call](run)

    bench.workflow(inside)
    bench.start()
    [ran] = drain()
    assert isinstance(ran.exception, WorkflowError)
    assert "leave the transaction first" in str(ran.exception)
    assert not effects


def test_an_async_function_in_a_plain_workflow_is_refused(bench: Bench) -> None:
    async def charge() -> None: ...

    bench.workflow(lambda run: run.step("charge", charge))
    bench.start()
    [ran] = drain()
    assert "make the workflow async" in str(ran.exception)


@pytest.mark.django_db(transaction=True)
def test_an_async_function_in_an_atomic_step_is_refused(bench: Bench) -> None:
    async def book() -> None: ...

    async def fulfil(run: AsyncRun) -> None:
        await run.atomic("book", book)

    bench.workflow(fulfil)
    bench.start()
    [ran] = drain()
    assert "Step 'book' needs a plain function" in str(ran.exception)


def test_arguments_of_a_function_may_have_any_name(bench: Bench) -> None:
    bench.workflow(lambda run: run.step("echo", dict, name="olga", function="f"))
    bench.start()
    [ran] = drain()
    assert ran.job.result == {"name": "olga", "function": "f"}


def test_a_stored_step_gives_a_run_all_its_retries_again(bench: Bench) -> None:
    """Three steps that fail twice each succeed, although the job has only three attempts."""
    calls: list[int] = []

    def fail_twice() -> None:
        calls.append(1)
        if len(calls) % 3:
            raise ZeroDivisionError

    def long(run: Run) -> int:
        for _ in range(3):
            run.step("part", fail_twice)
        with run.atomic("book") as step:
            if step.pending:
                step.result = Job.objects.get(id=run.job.id).retry_count
        raise ZeroDivisionError

    bench.workflow(long)
    run_id = bench.start()
    drain(delayed=True)
    assert len(calls) == 9
    job = Job.objects.get(id=run_id)
    assert (job.state, job.retry_count) == (State.DEAD, 2)
    assert WorkflowStep.objects.get(name="book").result == 0
    redrive(run_id)
    drain(delayed=True)
    assert len(calls) == 9


@pytest.mark.django_db(transaction=True)
def test_a_step_after_a_block_that_was_rolled_back_gives_a_run_all_its_retries(
    bench: Bench,
) -> None:
    seen: list[int] = []

    def book(run: Run) -> None:
        if not run.job.retry_count:
            raise ZeroDivisionError
        with suppress(IntegrityError), run.atomic("book"):
            Permission.objects.create(codename="x", content_type_id=0)  # Checked at the commit.
        run.step("note", lambda: seen.append(Job.objects.get(id=run.job.id).retry_count))

    bench.workflow(book)
    bench.start()
    drain(delayed=True)
    assert seen == [0]


@pytest.mark.django_db(transaction=True)
def test_a_callback_that_fails_after_the_commit_of_a_step_ends_no_claim(bench: Bench) -> None:
    def book(run: Run) -> Any:
        with suppress(ZeroDivisionError), run.atomic("book"):
            transaction.on_commit(lambda: 1 // 0)
        return run.step("charge", lambda: 7)

    bench.workflow(book)
    bench.start()
    [ran] = drain()
    assert ran.job.result == 7, ran.exception


def test_a_mock_may_stand_for_the_function_of_a_step(bench: Bench) -> None:
    charge = MagicMock(return_value=7)
    bench.workflow(lambda run: run.step("charge", charge, 1))
    bench.start()
    [ran] = drain()
    assert ran.job.result == 7


def test_a_run_that_suspends_is_no_crash_suspect_any_more(bench: Bench) -> None:
    bench.workflow(lambda run: run.sleep("night", timedelta(hours=8)))
    run_id = bench.start()
    Job.objects.update(suspect=True)
    drain()
    assert not Job.objects.get(id=run_id).suspect


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda run: run.sleep("x", 5), TypeError),
        (lambda run: run.sleep("x", timedelta.max), ValueError),
        (lambda run: run.sleep_until("x", datetime(2030, 1, 1)), ValueError),  # noqa: DTZ001
        (lambda run: run.sleep_until("x", datetime.max.replace(tzinfo=UTC)), ValueError),
        (lambda run: run.wait("x", 5), TypeError),
        (lambda run: run.step("x", 5), TypeError),
        (lambda run: run.step("", abs, 5), ValueError),
        (lambda run: run.step("x", abs, 5, retries=-1), ValueError),
        (lambda run: run.step("x", abs, 5, timeout=5), ValueError),
        (lambda run: run.continue_as(object()), TypeError),
        (lambda run: run.key(7), ValueError),
    ],
)
def test_arguments_that_can_not_be_are_refused_and_nothing_is_written(
    bench: Bench, call: Callable[[Run], object], error: type[Exception]
) -> None:
    bench.workflow(call)
    bench.start()
    [ran] = drain()
    assert type(ran.exception) is error
    assert not WorkflowStep.objects.exists()


def test_a_run_sleeps_until_a_time_of_the_databases_clock(bench: Bench) -> None:
    at = nodes.clock(USING) + timedelta(hours=1)

    def nap(run: Run) -> None:
        run.sleep_until("past", at - timedelta(days=1))
        run.sleep_until("hour", at)

    bench.workflow(nap)
    run_id = bench.start()
    [ran] = drain()
    assert ran.job.state == State.QUEUED, ran.exception
    due = Job.objects.get(id=run_id).available_at
    assert due is not None
    assert abs(due - at) < timedelta(seconds=1 + SLACK)


def test_a_result_has_the_same_order_of_keys_at_each_attempt(bench: Bench) -> None:
    """A run gets a result with its keys in the order of PostgreSQL, also at the first attempt."""
    orders: list[list[str]] = []

    def ship(run: Run) -> None:
        with run.atomic("book") as step:
            if step.pending:
                step.result = {"long": 1, "a": 2}
        parcels = run.step("parcels", lambda: {"zebra": 1, "ape": 2})
        orders.append([*parcels, *step.result])
        run.sleep("night", timedelta(hours=8))

    bench.workflow(ship)
    bench.start()
    drain(delayed=True)
    assert orders == [["ape", "zebra", "a", "long"]] * 2


@pytest.mark.django_db(transaction=True)
def test_a_block_that_has_ended_writes_nothing_again(bench: Bench) -> None:
    results: list[int] = []

    def book(run: Run) -> None:
        with run.atomic("book") as step:  # The check of step.pending is forgotten.
            step.result = Group.objects.create(name=f"{len(results)}").pk
        results.append(step.result)
        run.sleep("night", timedelta(hours=8))

    bench.workflow(book)
    bench.start()
    drain(delayed=True)
    assert results == [Group.objects.get().pk] * 2


class Rejected(Exception):
    """Exception whose class stores fewer arguments than its `__init__` takes."""

    def __init__(self, order: int, *, code: str) -> None:
        super().__init__(order)
        self.code = code


REJECTED = Rejected(7, code="limit")
GROUPED = ExceptionGroup("both", [ValueError("a"), Rejected(8, code="card")])


@pytest.mark.parametrize("error", [REJECTED, GROUPED, ValidationError({"name": ["too long"]})])
def test_a_caught_exception_is_the_same_at_each_replay(bench: Bench, error: Exception) -> None:
    seen: list[Exception] = []

    def fail() -> None:
        raise error

    def check(run: Run) -> None:
        try:
            run.step("check", fail)
        except (Rejected, ExceptionGroup, ValidationError) as caught:
            seen.append(caught)
        run.sleep("night", timedelta(hours=8))

    bench.workflow(check)
    bench.start()
    drain(delayed=True)
    first, again = seen
    assert (type(again), str(again)) == (type(error), str(error))
    assert again is not first
    if isinstance(again, ExceptionGroup):
        _, rejected = again.exceptions
        assert isinstance(rejected, Rejected)
        assert (rejected.args, rejected.code) == ((8,), "card")


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.django_db(transaction=True)
def test_steps_of_one_name_at_the_same_time_have_no_key(bench: Bench, is_named: bool) -> None:
    keys: list[str] = []

    async def pay_all(run: AsyncRun) -> None:
        names = [f"pay {order}" if is_named else "pay" for order in range(3)]
        await asyncio.gather(*(run.step(name, keys.append, run.key(name)) for name in names))

    bench.workflow(pay_all)
    bench.start()
    [ran] = drain()
    if is_named:
        assert ran.job.state == State.DELIVERED
        assert len(set(keys)) == 3
    else:
        assert isinstance(ran.exception, StepMismatch)
        assert "give each its own name" in str(ran.exception)
        assert len(keys) <= 1


@pytest.mark.django_db(transaction=True)
def test_a_step_that_was_cancelled_does_not_count_as_running(bench: Bench) -> None:
    keys: list[str] = []

    async def pay(run: AsyncRun) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await run.step("pay", asyncio.sleep, 60)
        await run.step("pay", asyncio.sleep, 0)
        keys.append(run.key("pay"))

    bench.workflow(pay)
    bench.start()
    [ran] = drain()
    assert ran.job.state == State.DELIVERED, ran.exception
    assert keys[0].endswith(":3")


@pytest.mark.django_db(transaction=True)
def test_a_failure_that_nothing_catches_is_not_stored_by_other_tasks(bench: Bench) -> None:
    calls: list[int] = []

    async def fetch() -> int:
        calls.append(1)
        return 1 // (len(calls) - 1)

    async def both(run: AsyncRun) -> Any:
        return await asyncio.gather(run.step("fetch", fetch), run.step("other", abs, -3))

    bench.workflow(both)
    bench.start()
    assert drain(delayed=True)[-1].job.state == State.DELIVERED
    assert len(calls) == 2


@pytest.mark.django_db(transaction=True)
def test_a_failure_that_nothing_has_awaited_yet_is_not_stored(bench: Bench) -> None:
    calls: list[int] = []

    async def fetch() -> int:
        calls.append(1)
        return 1 // (len(calls) - 1)

    async def overlap(run: AsyncRun) -> Any:
        fetching = asyncio.create_task(run.step("fetch", fetch))
        await run.step("reserve", asyncio.sleep, 0.05)
        await run.step("charge", abs, -3)
        return await fetching

    bench.workflow(overlap)
    bench.start()
    assert drain(delayed=True)[-1].job.state == State.DELIVERED
    assert len(calls) == 2


@pytest.mark.django_db(transaction=True)
def test_a_failure_of_another_task_that_was_caught_is_stored(bench: Bench) -> None:
    calls: list[int] = []

    async def fetch() -> float:
        calls.append(1)
        return 1 / 0

    async def settle(run: AsyncRun) -> None:
        await asyncio.gather(run.step("fetch", fetch), return_exceptions=True)
        await run.sleep("night", timedelta(hours=8))

    bench.workflow(settle)
    bench.start()
    assert drain(delayed=True)[-1].job.state == State.DELIVERED
    assert len(calls) == 1


def test_a_caught_discard_is_stored(bench: Bench) -> None:
    calls: list[int] = []

    def reserve() -> None:
        calls.append(1)
        raise Discard("no stock")

    def order(run: Run) -> Any:
        try:
            run.step("reserve", reserve)
        except Discard as error:
            run.sleep("night", timedelta(hours=8))
            return error.reason

    bench.workflow(order)
    tested = run_workflow(order)
    assert (tested.result, len(calls)) == ("no stock", 1)


def test_a_snooze_in_a_step_begins_the_step_again_later(bench: Bench) -> None:
    """A snooze is no result of the step: a later claim calls it again, and no retry is charged."""
    calls: list[str] = []

    def is_delivered() -> bool:
        calls.append("asked")
        if len(calls) < 4:
            raise Snooze(timedelta(hours=1))
        return True

    def order(run: Run) -> Any:
        run.step("pack", calls.append, "packed")
        return run.step("delivered", is_delivered)

    bench.workflow(order)
    bench.start()
    ran = drain(delayed=True)[-1]
    assert (ran.job.state, ran.job.retry_count) == (State.DELIVERED, 0)
    assert calls == ["packed", "asked", "asked", "asked"]


def test_a_caught_snooze_is_not_stored(bench: Bench) -> None:
    """A snooze that the workflow catches is no result either: the replay calls the step again."""
    calls: list[int] = []

    def is_delivered() -> None:
        calls.append(1)
        raise Snooze(timedelta(hours=1))

    def order(run: Run) -> None:
        with suppress(Snooze):
            run.step("delivered", is_delivered)
        run.sleep("night", timedelta(hours=8))

    bench.workflow(order)
    bench.start()
    assert drain(delayed=True)[-1].job.state == State.DELIVERED
    assert len(calls) == 2


@pytest.mark.django_db(transaction=True)
def test_a_step_next_to_a_failed_step_is_stored_before_the_attempt_ends(bench: Bench) -> None:
    calls: list[str] = []

    async def charge() -> None:
        calls.append("charge")
        await asyncio.sleep(0.05)

    async def fetch() -> None:
        calls.append("fetch")
        if calls.count("fetch") == 1:
            raise ZeroDivisionError

    async def both(run: AsyncRun) -> None:
        await asyncio.gather(run.step("charge", charge), run.step("fetch", fetch))

    bench.workflow(both)
    bench.start()
    assert drain(delayed=True)[-1].job.state == State.DELIVERED
    assert calls == ["charge", "fetch", "fetch"]


@pytest.mark.django_db(transaction=True)
def test_a_failure_next_to_a_suspension_of_another_task_ends_the_attempt(bench: Bench) -> None:
    async def fetch() -> None:
        raise ZeroDivisionError

    async def both(run: AsyncRun) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run.step("fetch", fetch))
            tasks.create_task(run.sleep("night", timedelta(hours=8)))

    bench.workflow(both)
    bench.start()
    [ran] = drain()
    assert ran.job.state == State.QUEUED
    assert "ZeroDivisionError" in (ran.job.error or "")


@pytest.mark.parametrize("call", ["step", "atomic"])
@pytest.mark.django_db(transaction=True)
def test_a_function_that_raises_stop_iteration_keeps_no_async_run_waiting(
    bench: Bench, call: str
) -> None:
    """A StopIteration of a step becomes a RuntimeError, as a future would not pass it on."""

    async def fetch_first(run: AsyncRun) -> str:
        try:
            async with asyncio.timeout(SLACK):
                await getattr(run, call)("first", lambda: next(iter(())))
        except RuntimeError as error:
            return str(error)
        return "no error"

    assert run_workflow(bench.workflow(fetch_first)).result == "The function raised StopIteration."


class Silent(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_a_caught_exception_without_a_text_ends_no_attempt(bench: Bench) -> None:
    def pay(run: Run) -> str:
        with pytest.raises(Silent):
            run.step("charge", fail)
        return str(run.step("note", lambda: "noted"))

    def fail() -> None:
        raise Silent

    tested = run_workflow(bench.workflow(pay), crash_after="*")
    assert (tested.result, tested.state) == ("noted", State.DELIVERED)
