"""A deploy: which runs go on, which would break, and how they are repaired."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.management import call_command

from pulljobs.diagnosis import explain
from pulljobs.errors import RunEnded, UnknownRun, WorkflowError
from pulljobs.models import AuditEntry, Job
from pulljobs.states import State
from pulljobs.testing import drain, run_workflow
from pulljobs.workflows import (
    AsyncRun,
    Run,
    checking,
    create_signal_token,
    definitions,
    loading,
    redrive,
    signal,
    versions,
)
from pulljobs.workflows.models import RunSignal, WorkflowRun, WorkflowStep
from tests.factories import ConsumerFactory
from tests.handling import registry_of_its_own
from tests.workflows.runs.conftest import Bench


def charge_and_wait(run: Run) -> Any:
    run.step("charge", lambda: "receipt")
    return run.wait("approval")


def bill_and_wait(run: Run) -> Any:
    Group.objects.count()
    run.step("bill", lambda: Group.objects.create(name="effect").pk)
    return run.wait("approval")


def test_a_check_names_the_runs_whose_step_was_renamed_and_writes_nothing(bench: Bench) -> None:
    bench.workflow(charge_and_wait)
    bench.start()
    drain()
    assert checking.check_runs() == checking.CheckedRuns(1, 0, [])
    with registry_of_its_own():
        definitions._registered.clear()
        bench.workflow(bill_and_wait)
        [broken] = checking.check_runs().broken
        assert (
            broken.problem == "The code asks for step 'bill' where the run has step 'charge', "
            "wait 'approval'."
        )
    with registry_of_its_own():
        definitions._registered.clear()
        bench.workflow(lambda run: Group.objects.create(name="effect"))
        [broken] = checking.check_runs().broken
        assert "before step 'charge'" in broken.problem
    assert not Group.objects.exists()


@pytest.mark.parametrize("kind", ["gather", "start"])
def test_a_check_publishes_no_children(bench: Bench, kind: str) -> None:
    parts = ConsumerFactory.create().channel.name
    calls: dict[str, Callable[[Run, str], object]] = {
        "gather": lambda run, name: run.gather(name, [1], channel=parts),
        "start": lambda run, name: run.result(run.start(parts, 1, name=name)),
    }
    bench.workflow(lambda run: calls[kind](run, "parts"))
    bench.start()
    drain(bench.consumer.channel.name)
    with registry_of_its_own():
        definitions._registered.clear()
        bench.workflow(lambda run: calls[kind](run, "pieces"))
        [broken] = checking.check_runs().broken
    assert broken.problem.startswith(
        f"The code asks for {kind} 'pieces' where the run has {kind} 'parts'"
    )


def test_a_check_reads_past_runs_that_have_ended(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "AT_ONCE", 1)
    bench.workflow(lambda run: run.wait("approval") if run.input else None)
    for payload in (0, 1):
        bench.start(payload)
    drain()
    assert checking.check_runs() == checking.CheckedRuns(1, 0, [])


@pytest.mark.django_db(transaction=True)
def test_a_check_writes_nothing_from_async_code_between_steps(bench: Bench) -> None:
    async def book(run: AsyncRun) -> None:
        await run.wait("approval")

    async def write(run: AsyncRun) -> None:
        await Group.objects.acreate(name="effect")
        await run.wait("approval")

    bench.workflow(book)
    bench.start()
    drain()
    assert checking.check_runs().broken == []
    with registry_of_its_own():
        definitions._registered.clear()
        bench.workflow(write)
        [broken] = checking.check_runs().broken
    assert "cannot execute INSERT in a read-only transaction" in broken.problem
    assert not Group.objects.exists()


async def gather_tasks(*calls: Any) -> None:
    await asyncio.gather(*calls)


async def group_tasks(*calls: Any) -> None:
    async with asyncio.TaskGroup() as tasks:
        for call in calls:
            tasks.create_task(call)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("run_all", [gather_tasks, group_tasks])
def test_a_check_replays_all_tasks_of_an_async_run(bench: Bench, run_all: Any) -> None:
    async def nap(run: AsyncRun) -> None:
        for _cup in range(3):
            await run.step("tea", abs, -1)
        await run.sleep("nap", timedelta(hours=8))

    async def both(run: AsyncRun) -> None:
        await run_all(nap(run), run.step("charge", abs, -2))

    async def other(run: AsyncRun) -> None:
        await run_all(nap(run), run.step("bill", abs, -2))

    bench.workflow(both)
    bench.start()
    drain()
    assert WorkflowStep.objects.count() == 5
    assert checking.check_runs().broken == []
    with registry_of_its_own():
        definitions._registered.clear()
        bench.workflow(other)
        [broken] = checking.check_runs().broken
    assert "step 'charge'" in broken.problem


def test_a_function_may_be_the_workflow_of_several_consumers(bench: Bench) -> None:
    other = Bench(ConsumerFactory.create())
    for each in (bench, other):
        each.workflow(charge_and_wait)
        each.start()
    drain()
    assert checking.check_runs() == checking.CheckedRuns(2, 0, [])
    assert len(versions.report_versions()) == 2


def test_a_redrive_from_a_step_forgets_it_and_gives_its_signals_back(bench: Bench) -> None:
    charged: list[int] = []

    def fulfil(run: Run) -> Any:
        run.step("charge", lambda: charged.append(1))
        approval = run.wait("approval")
        run.step("ship", lambda: 1 / approval)
        return approval

    bench.workflow(fulfil, ack_policy="reject_on_error")
    run_id = bench.start()
    signal(run_id, "approval", 0)
    [ran] = drain()
    assert ran.job.state == State.DEAD
    with pytest.raises(WorkflowError, match="'refund'"):
        redrive(run_id, from_step="refund")
    with pytest.raises(TypeError, match="its name and number, not 7"):
        redrive(run_id, from_step=7)  # type: ignore[arg-type]  # the mistake
    redrive(run_id, from_step="approval")
    [ran] = drain()
    assert ran.job.state == State.DEAD, "the same signal again"
    assert len(charged) == 1
    call_command("pulljobs", "workflows", "redrive", str(run_id), "--from-step", "charge")
    drain()
    assert len(charged) == 2
    assert AuditEntry.objects.get().subject == f"run {run_id} from ('charge', 1)"


def test_a_redrive_that_discards_signals_waits_for_the_right_one(bench: Bench) -> None:
    bench.workflow(lambda run: 6 / run.wait("approval"), ack_policy="reject_on_error")
    run_id = bench.start()
    signal(run_id, "approval", 0, dedupe_id="approval")
    [ran] = drain()
    assert ran.job.state == State.DEAD
    with pytest.raises(WorkflowError, match="needs from_step"):
        redrive(run_id, discard_signals=True)
    command = ("pulljobs", "workflows", "redrive", str(run_id), "--from-step", "approval")
    call_command(*command, "--discard-signals")
    drain()
    assert WorkflowRun.objects.get().waiting_for == "approval"
    assert signal(run_id, "approval", 2, dedupe_id="approval")
    assert drain()[-1].job.result == 3
    assert RunSignal.objects.get().payload == 2


def test_signals_for_runs_that_can_not_get_them_are_refused(bench: Bench) -> None:
    bench.workflow(lambda run: None)
    run_id = bench.start()
    drain()
    with pytest.raises(RunEnded, match="DELIVERED") as ended:
        signal(run_id, "approval")
    assert "ignore_missing=True" in ended.value.__notes__[0]
    with pytest.raises(RunEnded, match="DELIVERED"):
        create_signal_token(run_id, "approval")
    with pytest.raises(WorkflowError, match=r"DELIVERED.* Publish its message again\."):
        redrive(run_id)
    for refused in (partial(signal, 7), partial(create_signal_token, 7)):
        with pytest.raises(UnknownRun):
            refused("approval")
    assert not signal("nonsense", "approval", ignore_missing=True)


def test_the_command_says_if_the_signal_was_sent(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.workflow(lambda run: run.wait("approval"))
    run_id = bench.start()
    for answer in ("yes", "no"):
        call_command("pulljobs", "workflows", "signal", str(run_id), "approval", "--dedupe-id=1")
        assert capsys.readouterr().out.split()[-1] == answer


def test_explain_says_what_a_run_waits_for(bench: Bench) -> None:
    def naps(run: Run) -> None:
        run.sleep("cool-off", timedelta(days=1))
        run.wait("approval")

    bench.workflow(naps)
    run_id = bench.start()
    drain()
    [reason, *_rest] = explain.reasons(Job.objects.get())
    assert reason.code == "sleeps"
    WorkflowStep.objects.update(due_at="2026-01-01T00:00:00Z")
    Job.objects.update(available_at="2026-01-01T00:00:00Z")
    drain()
    [reason, *_rest] = explain.reasons(Job.objects.get(id=run_id))
    assert "waits for a signal 'approval'" in reason.text


def test_a_tested_run_jumps_over_sleeps_and_survives_a_crash_after_every_step(bench: Bench) -> None:
    calls: list[str] = []

    def fulfil(run: Run) -> Any:
        run.step("charge", lambda: calls.append("charge"))
        with run.atomic("book") as step:
            if step.pending:
                step.result = Group.objects.create(name=run.id).pk
        run.sleep("cool-off", timedelta(days=365))
        return [run.wait("approval"), Group.objects.count()]

    bench.workflow(fulfil, max_retries=0)
    tested = run_workflow(fulfil, {"order": 1}, signals=[("approval", "yes")], crash_after="*")
    assert (tested.state, tested.result) == (State.DELIVERED, ["yes", 1])
    assert tested.steps == ["charge", "book", "cool-off", "approval"]
    assert tested.crashes == 3
    assert calls == ["charge"]
    with pytest.raises(AssertionError, match="'approval' without a timeout"):
        run_workflow(fulfil)
