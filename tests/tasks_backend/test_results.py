"""Results of tasks: equal wherever they come from, with the errors of all runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest
from django.utils import timezone

from pulljobs import ids, operating
from pulljobs.models import Job
from pulljobs.states import Reason
from pulljobs.tasks_backend.interface import TaskResultStatus, task_finished, task_started
from pulljobs.testing import drain

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def seen(signal: Any) -> Iterator[list[Any]]:
    """Yield the list of the results that the receivers of the signal get."""
    results: list[Any] = []

    def receive(task_result: Any, **kwargs: Any) -> None:
        results.append(task_result)

    signal.connect(receive)
    try:
        yield results
    finally:
        signal.disconnect(receive)


def test_the_results_of_enqueue_and_get_result_are_equal(tasks: ModuleType) -> None:
    later = timezone.now() + timedelta(hours=1)
    for task in (tasks.add, tasks.add.using(priority=5, run_after=later)):
        result = task.enqueue(2, right=3.5)
        assert task.get_result(result.id) == result


def test_arguments_of_a_result_are_those_that_the_task_gets(tasks: ModuleType) -> None:
    result = tasks.add.enqueue({1: (2, b"three")}, 0)
    assert result.args == tasks.add.get_result(result.id).args == [{"1": [2, "three"]}, 0]


def test_a_run_without_a_worker_counts_and_has_no_id(tasks: ModuleType) -> None:
    with seen(task_started) as started:
        result = tasks.add.enqueue(2, 3)
        drain()
    result.refresh()
    assert (result.attempts, result.worker_ids) == (1, [""])
    assert started[0].worker_ids == [""]


def test_a_running_task_has_the_time_at_which_it_was_enqueued(tasks: ModuleType) -> None:
    with seen(task_started) as started:
        result = tasks.add.enqueue(2, 3)
        drain()
    assert [running.enqueued_at for running in started] == [result.enqueued_at]
    assert tasks.add.get_result(result.id).enqueued_at == result.enqueued_at


def test_the_errors_of_all_runs_are_kept_after_a_late_success(tasks: ModuleType) -> None:
    with seen(task_started) as started:
        result = tasks.attempts.enqueue(until=3)
        drain(delayed=True)
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.SUCCESSFUL, 3)
    assert [error.exception_class for error in result.errors] == [OSError, OSError]
    assert "not yet" in result.errors[0].traceback
    assert [len(running.errors) for running in started][1:] == [1, 2]
    assert started[2].started_at == result.started_at


def test_a_redrive_begins_with_no_errors(tasks: ModuleType) -> None:
    result = tasks.fail.enqueue("no luck")
    drain(delayed=True)
    operating.redrive([ids.decode(result.id)])
    assert tasks.fail.get_result(result.id).errors == []


def test_a_task_that_an_operator_kills_has_the_errors_of_its_runs_too(tasks: ModuleType) -> None:
    result = tasks.wait_long.enqueue()
    drain()
    operating.kill([ids.decode(result.id)], by="Ann")
    errors = tasks.wait_long.get_result(result.id).errors
    assert [error.traceback for error in errors] == ["retry", "killed by Ann"]


@pytest.mark.parametrize(
    ("how", "kind"), [("object", TypeError), ("large", ValueError), ("deep", RecursionError)]
)
def test_a_value_that_cannot_be_stored_fails_its_task_once(
    tasks: ModuleType, how: str, kind: type[Exception]
) -> None:
    with seen(task_finished) as finished:
        result = tasks.answer.enqueue(how)
        assert len(drain(delayed=True)) == 1
    after = tasks.answer.get_result(result.id)
    assert after.status == TaskResultStatus.FAILED
    assert [error.exception_class for error in after.errors] == [kind]
    assert [each.errors for each in finished] == [after.errors]


@pytest.mark.parametrize(("name", "runs"), [("try_often", 5), ("try_once", 1), ("fail", 3)])
def test_the_retries_of_a_task_replace_those_of_its_queue(
    tasks: ModuleType, name: str, runs: int
) -> None:
    """A task runs as often as its own options say, else three times, as its queue says."""
    task = getattr(tasks, name)
    result = task.enqueue(*["no luck"] * (name == "fail"))
    assert len(drain(delayed=True)) == runs
    assert len(task.get_result(result.id).errors) == runs
    assert Job.objects.get().reason == Reason.RETRIES_EXHAUSTED


@pytest.mark.parametrize(("after", "seconds"), [(None, 500), (50.0, 50)])
def test_the_delays_of_a_task_replace_those_of_its_queue(
    tasks: ModuleType, after: float | None, seconds: float
) -> None:
    """The delay of a retry is the task's own, unless the running task asked for another."""
    tasks.wait_long.enqueue(after)
    drain()
    due = Job.objects.get().available_at
    assert due is not None
    assert (due - timezone.now()).total_seconds() == pytest.approx(seconds, rel=0.3)


@pytest.mark.parametrize("tasks", [{"retry_strategy": "none"}], indirect=True)
def test_a_task_may_be_retried_in_a_queue_without_retries(tasks: ModuleType) -> None:
    tasks.try_often.enqueue()
    assert len(drain(delayed=True)) == 5
