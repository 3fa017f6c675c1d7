"""Steps: stored once under the lease, found again by their names, committed with their effects."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction
from django.utils import timezone

from pulljobs import handlers, hooks
from pulljobs.errors import (
    ConfigurationError,
    StepFailed,
    StepMismatch,
    WaitTimedOut,
    WorkflowError,
)
from pulljobs.models import Job
from pulljobs.states import State
from pulljobs.storage import listen
from pulljobs.testing import drain
from pulljobs.workflows import AsyncRun, Run, definitions, reading, signal, versions, workflow
from pulljobs.workflows.failures import decode_failure, encode_failure
from pulljobs.workflows.loop import RunLoop
from pulljobs.workflows.models import RunSignal, WorkflowRun, WorkflowStep
from tests.factories import USING
from tests.handling import registry_of_its_own
from tests.workflows.runs.conftest import Bench


def test_a_finished_step_returns_its_result_and_does_not_run_again(bench: Bench) -> None:
    charged: list[str] = []
    failures = [ZeroDivisionError()]

    def charge(key: str) -> dict[str, int]:
        charged.append(key)
        return {"no": 7}

    def fulfil(run: Run) -> Any:
        receipt = run.step("charge", charge, run.key("charge"))
        if failures:
            raise failures.pop()
        return receipt

    bench.workflow(fulfil)
    run_id = bench.start({"order": 1})
    first, second = [*drain(), *drain(delayed=True)]
    assert isinstance(first.exception, ZeroDivisionError)
    assert second.job.result == {"no": 7}
    assert len(charged) == 1
    assert charged[0].endswith(":charge:1")
    [step] = WorkflowStep.objects.filter(run_id=run_id)
    assert (step.kind, step.position, step.ended_at is not None) == ("step", 1, True)


def test_repeats_of_a_name_are_numbered(bench: Bench) -> None:
    def count(run: Run) -> list[int]:
        return [run.step("square", pow, number, 2) for number in range(3)]

    bench.workflow(count)
    bench.start()
    [ran] = drain()
    assert ran.job.result == [0, 1, 4]
    assert list(WorkflowStep.objects.order_by("number").values_list("number", "position")) == [
        (1, 1),
        (2, 2),
        (3, 3),
    ]


@pytest.mark.django_db(transaction=True)
def test_an_atomic_step_commits_with_its_writes_and_runs_once(bench: Bench) -> None:
    failures = [ZeroDivisionError("inside"), ZeroDivisionError("after")]

    def book(run: Run) -> Any:
        with run.atomic("book") as step:
            if step.pending:
                Group.objects.create(name="booked")
                if len(failures) == 2:
                    raise failures.pop(0)
                step.result = {"booked": Group.objects.count()}
        if failures:
            raise failures.pop()
        return step.result

    bench.workflow(book)
    bench.start()
    errors = [drain(delayed=True, rounds=1000) for _ in range(1)]
    assert [run.job.state for run in errors[0]][-1] == State.DELIVERED
    assert errors[0][-1].job.result == {"booked": 1}
    assert Group.objects.filter(name="booked").count() == 1


def test_a_sleeping_run_is_queued_until_then_and_goes_on(bench: Bench) -> None:
    def nap(run: Run) -> Any:
        run.sleep("cool-off", timedelta(days=1))
        return run.step("rest", lambda: "rested")

    bench.workflow(nap)
    run_id = bench.start()
    [slept] = drain()
    assert (slept.job.state, slept.job.retry_count) == (State.QUEUED, 0)
    assert drain() == []
    Job.objects.filter(id=run_id).update(available_at="2026-01-01T00:00:00Z")
    [early] = drain()
    assert early.job.state == State.QUEUED, "woken too early, it sleeps on"
    WorkflowStep.objects.filter(run_id=run_id).update(due_at="2026-01-01T00:00:00Z")
    [ran] = drain(delayed=True)
    assert ran.job.result == "rested"


def test_a_signal_wakes_the_run_that_waits_for_it(bench: Bench) -> None:
    def approve(run: Run) -> Any:
        return [run.wait("approval"), run.wait("approval")]

    bench.workflow(approve)
    run_id = bench.start()
    [waits] = drain()
    assert waits.job.state == State.QUEUED
    with transaction.atomic():
        assert signal(run_id, "other", 0)
        assert signal(run_id, "approval", {"by": "olga"}, dedupe_id="a")
        assert not signal(run_id, "approval", {"by": "olga"}, dedupe_id="a")


@pytest.mark.django_db(transaction=True)
def test_signals_are_delivered_once_and_in_their_order(bench: Bench) -> None:
    def approve(run: Run) -> Any:
        return [run.wait("approval"), run.wait("approval"), run.step("end", lambda: 3)]

    bench.workflow(approve)
    run_id = bench.start()
    assert signal(run_id, "approval", 1), "sent before the run begins"
    [waits] = drain()
    assert waits.job.state == State.QUEUED
    assert signal(run_id, "other", 0)
    assert drain() == [], "a signal that it does not wait for does not wake it"
    assert signal(run_id, "approval", 2)
    [ran] = drain()
    assert ran.job.result == [1, 2, 3]
    assert RunSignal.objects.filter(consumed_at=None).count() == 1
    assert WorkflowRun.objects.get().waiting_for is None


def test_a_wait_times_out_and_stays_so(bench: Bench) -> None:
    def approve(run: Run) -> Any:
        try:
            return run.wait("approval", timeout=timedelta())
        except WaitTimedOut:
            return run.step("escalate", lambda: "escalated")

    bench.workflow(approve)
    bench.start()
    [ran] = drain()
    assert ran.job.result == "escalated"


class CardDeclined(Exception):
    pass


def test_a_caught_failure_is_raised_again_at_each_replay(bench: Bench) -> None:
    charges: list[int] = []

    def charge() -> None:
        charges.append(1)
        raise CardDeclined("no funds")

    def fulfil(run: Run) -> str:
        try:
            run.step("charge", charge)
        except CardDeclined as error:
            run.sleep("before the letter", timedelta(hours=1))
            return f"declined: {error}"
        return "charged"

    bench.workflow(fulfil)
    run_id = bench.start()
    drain()
    WorkflowStep.objects.filter(run_id=run_id).update(due_at="2026-01-01T00:00:00Z")
    [ran] = drain(delayed=True)
    assert ran.job.result == "declined: no funds"
    assert len(charges) == 1


def test_a_large_failure_is_stored_as_its_text() -> None:
    error = CardDeclined("no funds\x00", {"order": 7})
    error.card = "x" * 100_000  # type: ignore[attr-defined]
    stored = json.loads(encode_failure(error))
    assert stored["attributes"] == {}
    restored = decode_failure("charge", stored)
    assert type(restored) is CardDeclined
    assert "no funds" in str(restored)
    gone = decode_failure("charge", {**stored, "class": "no.such:Error"})
    assert isinstance(gone, StepFailed)


@pytest.mark.parametrize("then", ["return", "step", "continue_as"])
def test_a_swallowed_suspension_fails_the_run_with_a_clear_error(bench: Bench, then: str) -> None:
    calls: list[int] = []

    def greedy(run: Run) -> str:
        with suppress(BaseException):
            run.sleep("night", timedelta(hours=8))
        if then == "step":
            run.step("charge", calls.append, 1)
        if then == "continue_as":
            run.continue_as({})
        return "done"

    bench.workflow(greedy)
    bench.start()
    [ran] = drain()
    assert ran.job.state == State.DEAD
    assert "The workflow caught this and went on" in str(ran.job.error)
    assert not WorkflowStep.objects.exists()
    assert not calls


def test_a_suspension_passes_through_blocks_that_call_the_run(bench: Bench) -> None:
    def careful(run: Run) -> Any:
        try:
            run.sleep("night", timedelta(hours=8))
        finally:
            run.step("tidy up", lambda: None)

    bench.workflow(careful)
    bench.start()
    drain(delayed=True)
    assert list(WorkflowStep.objects.values_list("name", flat=True)) == ["night", "tidy up"]


@pytest.mark.django_db(transaction=True)
def test_waits_of_several_tasks_suspend_an_async_run_together(bench: Bench) -> None:
    async def both(run: AsyncRun) -> Any:
        return await asyncio.gather(run.wait("first"), run.wait("second"))

    bench.workflow(both)
    run_id = bench.start()
    assert [ran.job.state for ran in drain()] == [State.QUEUED]
    assert signal(run_id, "second", 2)
    assert signal(run_id, "first", 1)
    assert [ran.job.result for ran in drain()] == [[1, 2]]


@pytest.mark.django_db(transaction=True)
def test_a_step_next_to_a_wait_is_stored_before_the_run_suspends(bench: Bench) -> None:
    charged: list[int] = []

    async def charge() -> None:
        charged.append(1)
        await asyncio.sleep(0.05)

    async def both(run: AsyncRun) -> None:
        await asyncio.gather(run.step("charge", charge), run.wait("approval"))

    bench.workflow(both)
    run_id = bench.start()
    assert [ran.job.state for ran in drain()] == [State.QUEUED]
    assert signal(run_id, "approval")
    assert [ran.job.state for ran in drain()] == [State.DELIVERED]
    assert charged == [1]


def test_a_result_that_is_set_after_its_block_changes_nothing(bench: Bench) -> None:
    def book(run: Run) -> Any:
        with run.atomic("book") as step:
            step.result = 1
        step.result = 2
        return step.result

    bench.workflow(book)
    bench.start()
    assert [ran.job.result for ran in drain()] == [1]


def test_a_name_that_is_used_for_another_function_is_refused(bench: Bench) -> None:
    def mixed(run: Run) -> None:
        run.step("charge", max, 1, 2)
        run.step("charge", min, 1, 2)

    bench.workflow(mixed)
    bench.start()
    [ran] = drain()
    assert isinstance(ran.exception, StepMismatch)
    assert WorkflowStep.objects.count() == 1


def _nested(depth: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.mark.parametrize("result", [object(), "x" * 20_000, _nested(100_000)])
def test_a_result_that_can_not_be_stored_names_its_step(bench: Bench, result: object) -> None:
    bench.workflow(lambda run: run.step("export", lambda: result))
    bench.start()
    [ran] = drain()
    assert "The result of 'export' " in str(ran.exception)
    assert not WorkflowStep.objects.exists()


def test_what_can_not_be_stored_is_refused_with_its_name_and_what_to_do(bench: Bench) -> None:
    calls: dict[str, Callable[[Run], object]] = {
        "The result is not JSON": lambda run: object(),
        "The result has 16386 bytes": lambda run: "x" * 16_384,
        "The payload is not JSON": lambda run: run.continue_as(float("nan")),
        "The payload has": lambda run: signal(run.id, "approval", "x" * 20_000),
        "needs a child that run.start returned": lambda run: run.result("x"),  # type: ignore[arg-type]
    }
    bench.workflow(lambda run: calls[run.input](run))
    for error in calls:
        bench.start(json.dumps(error))
        [ran] = drain()
        assert error in str(ran.job.error)


@pytest.mark.django_db(transaction=True)
def test_a_step_inside_a_transaction_is_refused(bench: Bench) -> None:
    def inside(run: Run) -> None:
        with transaction.atomic():
            run.step("charge", lambda: 1)

    bench.workflow(inside)
    bench.start()
    [ran] = drain()
    assert isinstance(ran.exception, WorkflowError)
    assert not WorkflowStep.objects.exists()


def test_a_run_continues_as_another_without_its_steps(bench: Bench) -> None:
    def countdown(run: Run) -> Any:
        left = run.input["left"]
        run.step("work", lambda: left)
        if left:
            run.continue_as({"left": left - 1})
        return left

    bench.workflow(countdown)
    run_id = bench.start({"left": 2})
    assert [run.job.state for run in drain()] == [State.QUEUED, State.QUEUED, State.DELIVERED]
    assert WorkflowRun.objects.get(id=run_id).rounds == 2
    assert WorkflowStep.objects.count() == 1


@pytest.mark.parametrize(
    "options",
    [{"ack_policy": "ack_first"}, {"transactional": True}, {"version": 0}, {"oldest_version": 2}],
)
def test_a_workflow_that_can_not_work_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        workflow(channel="orders", consumer="fulfilment", **options)(lambda run: None)


def test_claims_of_runs_do_not_wait_for_the_disk(bench: Bench) -> None:
    """Handlers of workflows are fenced: a run whose claim is lost in a crash writes nothing."""
    bench.workflow(lambda run: None)
    [registered] = handlers.registered()
    assert registered.is_fenced


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.django_db(transaction=True)
def test_a_run_of_another_version_is_claimed_once_and_left_to_workers_that_accept_it(
    bench: Bench, is_async: bool
) -> None:
    async def areturn(run: AsyncRun) -> int:
        return run.version

    function = areturn if is_async else lambda run: run.version
    bench.workflow(function, version=2, oldest_version=2)
    run_id = bench.start()
    WorkflowRun.objects.create(id=run_id, workflow="old", version=1)
    [ran] = drain()
    assert (ran.job.state, ran.job.deliveries) == (State.QUEUED, 0)
    versions.take_up(USING)
    assert drain() == [], "no worker accepts it, so none claims it"
    waits = reading.describe_wait(WorkflowRun.objects.get(), ran.job)
    assert waits == "a worker that accepts version 1"
    with registry_of_its_own():
        definitions._registered.clear()
        bench.workflow(function, version=1)
        versions.take_up(USING)
        [ran] = drain()
    assert (ran.job.result, ran.job.state) == (1, State.DELIVERED)


def test_a_worker_looks_first_for_the_runs_that_it_takes_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first pass wakes the fetcher of the worker, the next one wakes other processes."""
    own: list[list[int]] = []
    others: list[list[int]] = []
    monkeypatch.setattr(hooks, "fetch_wakers", [lambda ids: own.append(list(ids))])
    monkeypatch.setattr(listen, "wake_on_commit", lambda using, ids: others.append(list(ids)))
    bench.workflow(lambda run: run.version, version=2, oldest_version=2)
    run_id = bench.start()
    WorkflowRun.objects.create(id=run_id, workflow="old", version=1)
    drain()
    with registry_of_its_own():
        definitions._registered.clear()
        bench.workflow(lambda run: run.version, version=1)
        others.clear()
        runs = RunLoop()
        runs.tick()
        assert (own, others) == ([[bench.consumer.pk]], [[]])
        runs._take_up(USING)
        assert (own, others) == ([[bench.consumer.pk], []], [[], [bench.consumer.pk]])


def test_a_run_that_an_operator_made_due_is_not_taken_up_from_its_sleep(bench: Bench) -> None:
    bench.workflow(lambda run: run.sleep("cool-off", timedelta(days=365)), version=2)
    sleeps, deleted = bench.start(), bench.start()
    drain()
    WorkflowRun.objects.update(waiting_consumer=bench.consumer.pk)
    Job.objects.filter(id=deleted).delete()
    versions.take_up(USING)
    in_a_while = timezone.now() + timedelta(days=364)
    assert Job.objects.filter(id=sleeps, available_at__gt=in_a_while).exists()
    assert not WorkflowRun.objects.exclude(waiting_consumer=None).exists()


@pytest.mark.django_db(transaction=True)
def test_an_async_workflow_does_the_same(bench: Bench) -> None:
    """An async workflow has steps, atomic steps and waits for signals like a synchronous one."""

    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    async def calculate(run: AsyncRun) -> Any:
        both = await asyncio.gather(run.step("a", double, 1), run.step("b", abs, -3))
        group = await run.atomic("group", lambda: Group.objects.create(name="async").pk)
        assert isinstance(group, int)
        return [*both, await run.wait("more")]

    bench.workflow(calculate)
    run_id = bench.start()
    [waits] = drain()
    assert waits.job.state == State.QUEUED, waits.exception
    assert signal(run_id, "more", "yes")
    [ran] = drain()
    assert ran.job.result == [2, 3, "yes"]
    assert Group.objects.count() == 1
