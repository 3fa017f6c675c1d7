"""Children of runs: published with their step, awaited without a thread, killed with the run."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.test import TestCase
from django.utils import timezone

from pulljobs import batches, ids, operating
from pulljobs.diagnosis import explain
from pulljobs.engine import telemetry
from pulljobs.errors import ChildFailed, Discard, InvalidMessage, Snooze
from pulljobs.handlers import ClaimedJob, handler
from pulljobs.models import ArchivedJob, Consumer, Job, Message
from pulljobs.publishing import Draft, publish
from pulljobs.states import Reason, State
from pulljobs.storage import jobs
from pulljobs.testing import drain, run_workflow
from pulljobs.workflows import AsyncRun, Run, children, reading, redrive, signal, signals
from pulljobs.workflows.batches.history import forget_batches
from pulljobs.workflows.models import Batch, WorkflowRun, WorkflowStep
from pulljobs.workflows.telemetry import StepEnded
from tests.factories import USING, ConsumerFactory
from tests.workflows.runs.conftest import Bench


@pytest.fixture
def resize(bench: Bench) -> Consumer:
    """Return the consumer of the children, which double a number and discard a negative one."""
    consumer = ConsumerFactory.create()

    def double(job: ClaimedJob) -> Any:
        if job.json() < 0:
            raise Discard("negative")
        return 2 * job.json()

    handler(channel=consumer.channel.name, consumer=consumer.name)(double)
    return consumer


def test_children_run_apart_and_their_results_come_in_order(bench: Bench, resize: Consumer) -> None:
    def split(run: Run) -> Any:
        parts = [Draft(payload=number) for number in run.input]
        return run.gather(resize.channel.name, parts)

    bench.workflow(split)
    run_id = bench.start([3, 1, 2])
    [waits] = drain(bench.consumer.channel.name)
    assert waits.job.state == State.QUEUED
    assert WorkflowRun.objects.get().waiting_batch == Batch.objects.get(run_id=run_id).pk
    assert drain()[-1].job.result == [6, 2, 4]
    assert Message.objects.filter(channel=resize.channel).count() == 3


@pytest.mark.django_db(transaction=True)
def test_the_times_of_steps_are_without_those_of_children(bench: Bench, resize: Consumer) -> None:
    """Only the run's own steps emit times: those of children would be 0, even after hours."""

    def split(run: Run) -> None:
        run.step("own", int)
        run.result(run.start(resize.channel.name, 1))
        run.gather(resize.channel.name, [2])

    bench.workflow(split)
    bench.start()
    events: list[object] = []
    end = telemetry.record_with(events.append)
    drain()
    end()
    assert [each.kind for each in events if isinstance(each, StepEnded)] == ["step"]


def test_a_dead_child_raises_in_its_parent_unless_asked_otherwise(
    bench: Bench, resize: Consumer
) -> None:
    def split(run: Run) -> Any:
        errors = run.gather("asked", [1, -1], channel=resize.channel.name, return_errors=True)
        try:
            run.gather("raised", [-2], channel=resize.channel.name)
        except ChildFailed as error:
            return [errors[0], errors[1].error, error.reason]

    bench.workflow(split)
    bench.start()
    assert drain()[-1].job.result == [2, "negative", Reason.REJECTED]


def test_a_started_child_is_published_once_whatever_crashes(bench: Bench, resize: Consumer) -> None:
    def split(run: Run) -> Any:
        child = run.start(resize.channel.name, 21)
        run.step("meanwhile", lambda: None)
        return run.result(child)

    bench.workflow(split)
    tested = run_workflow(split, crash_after=["meanwhile"])
    assert (tested.result, tested.crashes) == (42, 1)
    assert Message.objects.filter(channel=resize.channel).count() == 1


def test_a_tested_run_crashes_after_the_start_of_a_child(bench: Bench, resize: Consumer) -> None:
    bench.workflow(split := lambda run: run.result(run.start(resize.channel.name, 21)))
    tested = run_workflow(split, crash_after="*")
    assert (tested.result, tested.crashes) == (42, 2)
    assert Message.objects.filter(channel=resize.channel).count() == 1


@pytest.mark.parametrize("dies_in_between", [False, True])
def test_the_kill_of_a_run_kills_its_queued_children(
    bench: Bench, resize: Consumer, dies_in_between: bool
) -> None:
    bench.workflow(lambda run: run.gather("parts", [1, 2], channel=resize.channel.name))
    run_id = bench.start()
    drain(bench.consumer.channel.name)
    if dies_in_between:
        operating.purge(bench.consumer)
        children.sweep(USING)
    else:
        operating.kill([run_id], by="olga")
    assert set(Job.objects.values_list("state", flat=True)) == {State.DEAD}
    assert Job.objects.count() == 3


def test_the_drop_of_a_run_whose_key_is_full_kills_its_queued_children(
    bench: Bench, resize: Consumer
) -> None:
    bounds = {"max_queued_per_key": 1, "key_overflow": "drop_oldest"}
    Consumer.objects.filter(id=bench.consumer.pk).update(**bounds)
    bench.workflow(lambda run: run.gather("parts", [1, 2], channel=resize.channel.name))
    publish(bench.consumer.channel.name, None, key="k")
    drain(bench.consumer.channel.name)
    publish(bench.consumer.channel.name, None, key="k")
    children.sweep(USING)
    assert Job.objects.filter(reason=Reason.KEY_OVERFLOW).count() == 1
    parts = Job.objects.filter(consumer=resize)
    assert [part.state for part in parts] == [State.DEAD, State.DEAD]


def test_a_run_whose_message_was_replaced_begins_again(bench: Bench, resize: Consumer) -> None:
    bounds = {"max_queued_per_key": 1, "key_overflow": "replace"}
    Consumer.objects.filter(id=bench.consumer.pk).update(**bounds)

    def order(run: Run) -> Any:
        article = run.step("reserve", lambda: run.input)
        run.start(resize.channel.name, 1)
        return [article, run.key("charge"), run.wait("approval", timeout=timedelta(days=1))]

    bench.workflow(order)
    [run_id] = publish(bench.consumer.channel.name, ["hat"], key="k").job_ids
    drain(bench.consumer.channel.name)
    assert signal(run_id, "approval", "of the hat")
    assert publish(bench.consumer.channel.name, ["shoe"], key="k").replaced
    assert signal(run_id, "approval", "of the shoe")
    signals.wake(USING, [run_id])
    key = f"{ids.encode(run_id)}.1:charge:1"
    assert drain(bench.consumer.channel.name)[-1].job.result == [["shoe"], key, "of the shoe"]
    states = [part.state for part in Job.objects.filter(consumer=resize).order_by("id")]
    assert states == [State.DEAD, State.QUEUED]


def test_a_signal_for_the_old_message_leaves_the_delay_of_the_new_one(bench: Bench) -> None:
    bounds = {"max_queued_per_key": 1, "key_overflow": "replace"}
    Consumer.objects.filter(id=bench.consumer.pk).update(**bounds)
    bench.workflow(lambda run: run.wait("approval"))
    channel = bench.consumer.channel.name
    [run_id] = publish(channel, 1, key="k").job_ids
    drain()
    delay = timedelta(hours=1)
    assert publish(channel, 2, key="k", delay=delay).replaced
    with TestCase.captureOnCommitCallbacks(execute=True):
        signal(run_id, "approval", "old")
    job = Job.objects.get(id=run_id)
    assert job.available_at is not None
    assert timezone.now() < job.available_at < timezone.now() + 2 * delay
    assert drain() == []
    [reason, *_rest] = explain.reasons(job)
    assert reason.code == "not_due"
    assert reading.get(run_id).waits_for == "a worker"


def test_children_of_a_lost_lease_are_not_published(bench: Bench, resize: Consumer) -> None:
    def split(run: Run) -> Any:
        operating.kill([run.job.id], by="olga")
        run.gather("parts", [1, 2], channel=resize.channel.name)

    bench.workflow(split)
    bench.start()
    drain()
    assert not Message.objects.filter(channel=resize.channel).exists()
    assert not Batch.objects.exists()
    assert not WorkflowStep.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_an_async_run_has_children_too(bench: Bench, resize: Consumer) -> None:
    async def split(run: AsyncRun) -> Any:
        child = await run.start(resize.channel.name, 4)
        parts = await run.gather("parts", [1, 2], channel=resize.channel.name)
        return [*parts, await run.result(child)]

    bench.workflow(split)
    bench.start()
    assert drain()[-1].job.result == [2, 4, 8]


def test_the_end_of_a_child_wakes_no_run_that_waits_for_something_else(
    bench: Bench, resize: Consumer
) -> None:
    def split(run: Run) -> Any:
        child = run.start(resize.channel.name, 21)
        run.sleep("night", timedelta(hours=8))
        return run.result(child)

    bench.workflow(split)
    bench.start()
    assert [ran.job.state for ran in drain()] == [State.QUEUED, State.DELIVERED]
    assert drain(delayed=True)[-1].job.result == 42


def test_a_run_that_snoozes_after_its_children_does_not_wait_for_them(
    bench: Bench, resize: Consumer
) -> None:
    """The run waits for the end of its snooze only, which a signal does not change."""
    snoozes = [Snooze(timedelta(hours=1))]

    def charge() -> str:
        if snoozes:
            raise snoozes.pop()
        return "paid"

    def split(run: Run) -> Any:
        run.gather("parts", [1], channel=resize.channel.name)
        return run.step("charge", charge)

    bench.workflow(split)
    run_id = bench.start()
    drain()
    with TestCase.captureOnCommitCallbacks(execute=True):
        signal(run_id, "approval")
    job = Job.objects.get(id=run_id)
    assert job.available_at is not None
    assert job.available_at > timezone.now()
    assert "waits_for_children" not in {reason.code for reason in explain.reasons(job)}
    assert reading.get(run_id).waits_for == "a worker"
    assert drain(delayed=True)[-1].job.result == "paid"


def test_steps_with_children_may_have_any_name(bench: Bench, resize: Consumer) -> None:
    name = "x" * 199 + "\n"
    bench.workflow(lambda run: run.gather(name, [1], channel=resize.channel.name))
    bench.start()
    assert drain()[-1].job.result == [2]
    assert len(Batch.objects.get().name) == 200


@pytest.mark.parametrize("drafts", ["ab", b"ab", {"a": 1}])
def test_a_payload_in_place_of_a_list_of_children_is_refused(bench: Bench, drafts: Any) -> None:
    bench.workflow(lambda run: run.gather("parts", drafts))
    bench.start()
    assert isinstance(drain()[-1].exception, InvalidMessage)


def test_a_redrive_from_a_step_kills_its_queued_children(bench: Bench, resize: Consumer) -> None:
    bench.workflow(lambda run: run.gather("parts", [1, 2], channel=resize.channel.name))
    run_id = bench.start()
    drain(bench.consumer.channel.name)
    with TestCase.captureOnCommitCallbacks(execute=True):
        redrive(run_id, from_step="parts")
    assert drain()[-1].job.result == [2, 4]
    dead = Job.objects.get(reason=Reason.KILLED, id=min(Job.objects.values_list("id", flat=True)))
    assert "the redrive of its run" in str(dead.error)
    assert Job.objects.count() == 2


def test_a_child_that_was_redriven_is_awaited_again(bench: Bench, resize: Consumer) -> None:
    def split(run: Run) -> Any:
        child = run.start(resize.channel.name, -1)
        run.wait("approval")
        return run.result(child, return_errors=True).reason

    bench.workflow(split)
    run_id = bench.start()
    drain()
    operating.redrive([job.pk for job in Job.objects.filter(state=State.DEAD)])
    signal(run_id, "approval")
    signals.wake(USING, [run_id])
    drain(bench.consumer.channel.name)
    assert Job.objects.get(id=run_id).state == State.QUEUED
    assert drain()[-1].job.result == Reason.REJECTED


def test_a_run_goes_on_whose_children_were_forgotten_with_their_batch(
    bench: Bench, resize: Consumer
) -> None:
    def split(run: Run) -> Any:
        child = run.start(resize.channel.name, 21)
        run.wait("approval")
        return run.result(child)

    bench.workflow(split)
    run_id = bench.start()
    drain()
    assert forget_batches(USING, timedelta(seconds=-1)) == 1
    signal(run_id, "approval")
    signals.wake(USING, [run_id])
    assert drain()[-1].job.result == 42


def test_a_child_whose_result_was_deleted_is_not_called_dead(
    bench: Bench, resize: Consumer
) -> None:
    def split(run: Run) -> Any:
        child = run.start(resize.channel.name, 21)
        run.wait("approval")
        return str(run.result(child, return_errors=True))

    bench.workflow(split)
    run_id = bench.start()
    drain()
    ArchivedJob.objects.filter(state=State.DELIVERED).delete()  # as the drop of its partition
    signal(run_id, "approval")
    assert "has ended, and its outcome was deleted by RETENTION" in drain()[-1].job.result


def test_the_kill_of_a_run_kills_the_children_of_its_children(bench: Bench) -> None:
    def split(run: Run) -> Any:
        if run.input:
            return run.gather(bench.consumer.channel.name, [run.input - 1] * 2)
        return run.wait("approval")

    bench.workflow(split)
    run_id = bench.start(2)
    drain()
    assert Job.objects.filter(state=State.QUEUED).count() == 7
    operating.kill([run_id], by="olga")
    assert not Job.objects.filter(state=State.QUEUED).exists()


def test_a_redrive_of_a_killed_run_redrives_the_children_that_were_killed_with_it(
    bench: Bench, resize: Consumer
) -> None:
    def split(run: Run) -> Any:
        if run.input == 0:
            return run.gather("own", [1, 2, 3], channel=resize.channel.name)
        return run.gather("runs", [0], channel=bench.consumer.channel.name)

    bench.workflow(split)
    run_id = bench.start(1)
    drain(bench.consumer.channel.name)
    [failed, *_rest] = Job.objects.filter(consumer=resize).order_by("id")
    with TestCase.captureOnCommitCallbacks(execute=True):
        operating.kill([failed.pk], by="olga")
        operating.kill([run_id], by="olga")
    assert Job.objects.filter(state=State.DEAD).count() == 5
    with TestCase.captureOnCommitCallbacks(execute=True):
        operating.redrive([run_id])
    assert list(Job.objects.filter(state=State.DEAD)) == [failed]
    assert not Batch.objects.exclude(cancelled_at=None).exists()
    operating.redrive([failed.pk])
    assert drain()[-1].job.result == [[2, 4, 6]]


def test_the_kill_of_a_run_kills_children_that_were_redriven_after_their_batch_was_cancelled(
    bench: Bench, resize: Consumer
) -> None:
    bench.workflow(lambda run: run.gather("parts", [1, 2], channel=resize.channel.name))
    run_id = bench.start()
    drain(bench.consumer.channel.name)
    batches.cancel(Batch.objects.get().pk)
    operating.redrive(list(Job.objects.filter(consumer=resize).values_list("id", flat=True)))
    with TestCase.captureOnCommitCallbacks(execute=True):
        operating.kill([run_id], by="olga")
    assert not Job.objects.exclude(state=State.DEAD).exists()


def test_a_sweep_during_the_redrive_of_a_killed_run_kills_no_children(
    bench: Bench, resize: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def redrive_after_sweep(using: str, job_ids: Sequence[int]) -> dict[int, int]:
        children.sweep(using)
        return redrive_jobs(using, job_ids)

    bench.workflow(lambda run: run.gather("parts", [1, 2], channel=resize.channel.name))
    run_id = bench.start()
    drain(bench.consumer.channel.name)
    operating.kill([run_id], by="olga")
    redrive_jobs = jobs.redrive
    monkeypatch.setattr(jobs, "redrive", redrive_after_sweep)
    with TestCase.captureOnCommitCallbacks(execute=True):
        operating.redrive([run_id])
    assert not Job.objects.filter(state=State.DEAD).exists()


def test_a_run_looks_again_at_a_redriven_child_whose_batch_was_deleted(
    bench: Bench, resize: Consumer
) -> None:
    def split(run: Run) -> Any:
        child = run.start(resize.channel.name, -1)
        run.wait("go")
        return run.result(child, return_errors=True).reason

    bench.workflow(split)
    run_id = bench.start()
    drain()
    assert forget_batches(USING, timedelta(0))
    operating.redrive([job.pk for job in Job.objects.filter(state=State.DEAD)])
    signal(run_id, "go")
    drain(bench.consumer.channel.name)
    drain(resize.channel.name)
    job = Job.objects.get(id=run_id)
    assert job.available_at is not None
    assert job.available_at - timezone.now() < timedelta(minutes=2)
    assert drain(delayed=True)[-1].job.result == Reason.REJECTED


def test_a_redrive_kills_queued_children_after_an_earlier_batch_was_deleted(
    bench: Bench, resize: Consumer
) -> None:
    def split(run: Run) -> Any:
        run.gather("first", [1], channel=resize.channel.name)
        run.wait("go")
        return run.gather("second", [2], channel=resize.channel.name)

    bench.workflow(split)
    run_id = bench.start()
    drain()
    assert forget_batches(USING, timedelta(seconds=-1)) == 1
    signal(run_id, "go")
    signals.wake(USING, [run_id])
    drain(bench.consumer.channel.name)
    with TestCase.captureOnCommitCallbacks(execute=True):
        redrive(run_id, from_step="first")
    [child] = Job.objects.filter(consumer=resize)
    assert child.state == State.DEAD


def test_a_redrive_from_a_result_lets_the_redriven_child_go_on(
    bench: Bench, resize: Consumer
) -> None:
    """A redrive from the step with a child's result keeps the child and publishes no other."""

    def split(run: Run) -> Any:
        child = run.start(resize.channel.name, -21)
        run.wait("go")
        return run.result(child)

    bench.workflow(split, ack_policy="reject_on_error")
    run_id = bench.start()
    drain()
    signal(run_id, "go")
    assert drain()[-1].job.state == State.DEAD
    child = Job.objects.exclude(id=run_id).get()
    operating.redrive([child.pk])
    result = WorkflowStep.objects.get(name__startswith="result of")
    with TestCase.captureOnCommitCallbacks(execute=True):
        redrive(run_id, from_step=result.name)
    assert Job.objects.get(id=child.pk).state == State.QUEUED
