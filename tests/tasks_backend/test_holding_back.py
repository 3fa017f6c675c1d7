"""Tasks that fail, and their neighbours in the same queue."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pulljobs import handlers, ids
from pulljobs.engine.circuit import task_of
from pulljobs.models import Consumer, Job, Node
from pulljobs.tasks_backend.interface import TaskResultStatus
from tests.sessions import wait_until
from tests.worker.processes import Stage, Worker

pytestmark = pytest.mark.processes
FAIL = "tests.tasks_backend.declared.fail"
PATH = "tasks-default-default/tasks"
FLAGS = (
    *("--concurrency", "2", "--backoff-after", "3", "--heartbeat-interval", "0.1"),
    *("--backoff-initial", "600", "--backoff-max", "1200"),
)


@pytest.fixture
def stage(transactional_db: None, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    stage.environment["DJANGO_SETTINGS_MODULE"] = "tests.tasks_backend.worker_settings"
    try:
        yield stage
    finally:
        stage.end()


def held_back() -> dict[str, Any]:
    """Return the reported circuits of the tasks that the worker holds back, by task."""
    node = Node.objects.first()
    circuits = node.report.get("circuits", {}) if node else {}
    return dict(circuits.get(PATH, {}).get("tasks", {}))


def with_failing_tasks(stage: Stage, tasks: ModuleType, count: int) -> Worker:
    """Enqueue `count` runs of a failing task, and return a worker once it holds the task back."""
    for _number in range(count):
        tasks.fail.enqueue("the other side is down")
    worker = stage.worker(*FLAGS)
    wait_until(lambda: list(held_back()) == [FAIL])
    return worker


def test_a_failing_task_holds_back_only_itself(stage: Stage, tasks: ModuleType) -> None:
    """Jobs of a failing task stay queued while its circuit is open. Other tasks run at once."""
    worker = with_failing_tasks(stage, tasks, 60)
    late = [ids.number_of(tasks.fail.enqueue("still down").id) for _number in range(20)]
    result = tasks.add.enqueue(2, 3)
    wait_until(lambda: _status(result) == TaskResultStatus.SUCCESSFUL)
    wait_until(lambda: not Job.objects.filter(state="INFLIGHT").exists())
    waiting = Job.objects.filter(id__in=late, state="QUEUED", deliveries=0, retry_count=0)
    assert waiting.count() == len(late), "held back, and charged nothing"
    assert held_back()[FAIL]["error"] == "ValueError"
    assert f"Jobs of {PATH}, task {FAIL} fail: none is claimed" in worker.log
    assert worker.stop() == 0


def test_a_single_failing_job_holds_back_nothing_not_even_its_task(
    stage: Stage, tasks: ModuleType
) -> None:
    tasks.fail.enqueue("poison")
    stage.worker(*FLAGS)
    wait_until(lambda: Job.objects.filter(retry_count__gt=5).exists() or _is_dead())
    assert not held_back()


def test_a_worker_retries_a_task_more_often_than_its_queue(stage: Stage, tasks: ModuleType) -> None:
    """A task with four retries runs five times although its queue allows two retries."""
    Consumer.objects.filter(pk__in=[row.pk for row in handlers.sync_consumers()]).update(
        max_retries=2
    )
    result = tasks.try_often.enqueue()
    stage.worker("--backoff-max", "0")
    wait_until(lambda: _status(result) == TaskResultStatus.FAILED)
    assert [error.exception_class for error in result.errors] == [OSError] * 5


def test_the_time_limit_of_a_task_replaces_that_of_its_queue(
    stage: Stage, tasks: ModuleType
) -> None:
    result = tasks.linger.enqueue()
    worker = stage.worker("--handler-timeout", "900")
    wait_until(lambda: _status(result) == TaskResultStatus.FAILED)
    assert [error.exception_class for error in result.errors] == [TimeoutError]
    assert "over its timeout" in worker.log


@pytest.mark.parametrize(
    ("payload", "task"),
    [
        (b'{"task": "a.b"}', "a.b"),
        (b"{}", ""),
        (b"[]", ""),
        (b"no JSON", ""),
        (b"\xff", ""),
        (b"[" * 9_000, ""),
        (rb'{"task": "a\u0000b\ud800\n\u001b[2J"}', "a\ufffdb\ufffd\ufffd\ufffd[2J"),
    ],
)
def test_the_task_of_a_payload(payload: bytes, task: str) -> None:
    """Any payload yields a printable name of a task, empty if it is no message of a task."""
    assert task_of(payload) == task


def _is_dead() -> bool:
    return Job.objects.filter(state="DEAD").exists()


def _status(result: Any) -> TaskResultStatus:
    result.refresh()
    status: TaskResultStatus = result.status
    return status
