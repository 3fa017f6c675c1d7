"""Django's tasks, run by pulljobs."""

import importlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.db import connections, transaction
from django.dispatch import Signal
from django.test import modify_settings, override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from pulljobs import handlers, ids, jobs, operating, pulling
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.errors import ConfigurationError, Discard, PulljobsError
from pulljobs.models import Channel, Consumer, Job, Lease, Message
from pulljobs.publishing import publish
from pulljobs.states import State
from pulljobs.tasks_backend import PullJobsBackend
from pulljobs.tasks_backend.interface import (
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from pulljobs.testing import drain
from tests.factories import USING, ChannelFactory, ConsumerFactory, TimedRun, claimed
from tests.handling import registry_of_its_own
from tests.sessions import query
from tests.tasks_backend.conftest import reload_backends

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def received(*signals: Signal) -> Iterator[list[str]]:
    statuses: list[str] = []

    def receive(signal: Signal, task_result: Any, **kwargs: Any) -> None:
        statuses.append(task_result.status)

    for signal in signals:
        signal.connect(receive)
    try:
        yield statuses
    finally:
        for signal in signals:
            signal.disconnect(receive)


def test_a_task_is_run_and_its_result_is_found(tasks: ModuleType) -> None:
    with received(task_enqueued, task_started, task_finished) as statuses:
        result = tasks.add.enqueue(2, right=3)
        assert (result.status, result.attempts) == (TaskResultStatus.READY, 0)
        drain()
    assert statuses == ["READY", "RUNNING", "SUCCESSFUL"]
    result.refresh()
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 5)
    assert (result.args, result.kwargs, result.attempts) == ([2], {"right": 3}, 1)
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert tasks.add.get_result(result.id).return_value == 5


def test_a_result_has_the_begin_of_its_first_and_of_its_last_run(tasks: ModuleType) -> None:
    result = tasks.add.enqueue(2, right=3)
    consumer = Consumer.objects.get()
    [first] = claimed(consumer)
    assert tasks.add.get_result(result.id).started_at == Lease.objects.get().claimed_at
    now = time.monotonic()
    failed = outcomes.retry(first, "x", after=timedelta(0))
    pulling.finish([failed._replace(run=TimedRun(now - 3600, 100.0))])
    [second] = claimed(consumer)
    pulling.finish([outcomes.deliver(second, "5", TimedRun(now - 1800, 100.0))])
    view = tasks.add.get_result(result.id)
    times = (view.started_at, view.last_attempted_at)
    ago = [(timezone.now() - at).total_seconds() for at in times]
    assert ago == [pytest.approx(3660, abs=60), pytest.approx(1860, abs=60)]
    archived = jobs.get(result.id)
    assert archived.started_at == view.last_attempted_at
    assert archived.run_seconds == pytest.approx(100)


def test_a_task_is_enqueued_when_its_transaction_commits(tasks: ModuleType) -> None:
    """A rollback undoes even the first task of a queue, which creates the consumer."""
    with transaction.atomic(using=USING):
        tasks.add.enqueue(1, 1)
        transaction.set_rollback(True, using=USING)
    assert not Consumer.objects.exists()
    result = tasks.add.enqueue(1, 1)
    drain()
    assert tasks.add.get_result(result.id).return_value == 2


def test_queue_priority_and_time_are_those_of_the_job(tasks: ModuleType) -> None:
    later = timezone.now() + timedelta(hours=1)
    result = async_to_sync(tasks.greet.using(run_after=later).aenqueue)("Ann")
    job = Job.objects.select_related("consumer__channel").get()
    assert (job.priority, job.available_at) == (10, later)
    assert job.consumer.channel.name == "tasks-default-receipts"
    assert (job.consumer.max_retries, ids.encode(job.pk)) == (2, result.id)
    assert drain() == []
    operating.reschedule([job.pk], at=None)
    drain()
    assert tasks.greet.get_result(result.id).return_value == {"hello": "Ann"}


def test_a_priority_may_be_a_whole_number_with_a_point(tasks: ModuleType) -> None:
    """Django accepts 5.0 as a priority, so `enqueue` does too."""
    result = tasks.about.using(priority=5.0).enqueue()
    assert Job.objects.get().priority == 5
    drain()
    assert tasks.about.get_result(result.id).return_value == [5, None]


def test_results_have_the_task_as_it_was_enqueued(tasks: ModuleType) -> None:
    """A result, and the context of the running task, have its priority and time as enqueued."""
    now = timezone.now()
    result = tasks.about.using(priority=7, run_after=now).enqueue()
    drain()
    after = task_backends["default"].get_result(result.id)
    assert after.task == result.task
    assert after.return_value == [7, now.isoformat()]


def test_a_task_that_fails_is_retried_and_then_failed(tasks: ModuleType) -> None:
    with received(task_finished) as statuses:
        result = tasks.fail.enqueue("no luck")
        assert len(drain(delayed=True)) == 3
    after = tasks.fail.get_result(result.id)
    assert (statuses, after.status) == (["FAILED"], TaskResultStatus.FAILED)
    assert [error.exception_class for error in after.errors] == [ValueError] * 3
    assert all("no luck" in error.traceback for error in after.errors)


@contextmanager
def failing_receiver() -> Iterator[None]:
    """Connect a receiver to `task_finished` that raises."""

    def fail(**kwargs: Any) -> None:
        raise LookupError

    task_finished.connect(fail)
    try:
        yield
    finally:
        task_finished.disconnect(fail)


@pytest.mark.parametrize(
    ("tasks", "runs"), [({}, 1), ({"transactional": True}, 3)], indirect=["tasks"]
)
def test_a_receiver_that_raises_repeats_a_task_only_in_its_transaction(
    tasks: ModuleType, runs: int
) -> None:
    with failing_receiver(), received(task_finished) as statuses:
        result = tasks.add.enqueue(1, 2)
        assert len(drain(delayed=True)) == runs
    status = "SUCCESSFUL" if runs == 1 else "FAILED"
    assert tasks.add.get_result(result.id).status == status
    assert statuses == [status] * (runs == 1)


@pytest.mark.parametrize("tasks", [{}, {"ack_policy": "reject_on_error"}], indirect=True)
def test_a_task_that_is_discarded_is_finished_once(tasks: ModuleType) -> None:
    with failing_receiver(), received(task_finished) as statuses:
        result = tasks.end.enqueue("discard")
        assert len(drain(delayed=True)) == 1
    assert statuses == ["FAILED"]
    [error] = tasks.end.get_result(result.id).errors
    assert (error.exception_class, error.traceback) == (Discard, "no such user")


@pytest.mark.parametrize("tasks", [{"ack_policy": "reject_on_error"}], indirect=True)
@pytest.mark.parametrize(("how", "runs"), [("value", 1), ("retry", 3)])
def test_a_task_that_keeps_failing_is_finished_once(tasks: ModuleType, how: str, runs: int) -> None:
    with received(task_finished) as statuses:
        result = tasks.end.enqueue(how)
        assert len(drain(delayed=True)) == runs
    assert statuses == [tasks.end.get_result(result.id).status] == ["FAILED"]


@pytest.mark.parametrize("tasks", [{}, {"ack_policy": "reject_on_error"}], indirect=True)
def test_a_snoozed_task_is_ready_again_without_an_error(tasks: ModuleType) -> None:
    with received(task_finished) as statuses:
        id = tasks.end.enqueue("snooze").id
        assert len(drain()) == 1
    result = tasks.end.get_result(id)
    assert (result.status, result.errors, statuses) == (TaskResultStatus.READY, [], [])


@pytest.mark.parametrize("tasks", [{"transactional": True}], indirect=True)
def test_no_signal_is_sent_for_a_task_that_is_rolled_back(tasks: ModuleType) -> None:
    with received(task_finished) as statuses:
        result = tasks.end.enqueue("discard")
        drain()
    assert tasks.end.get_result(result.id).status == TaskResultStatus.FAILED
    assert statuses == []


@pytest.mark.parametrize(("how", "kind"), [("retry", PulljobsError), ("missing", None)])
def test_an_error_has_an_exception_whatever_it_names(
    tasks: ModuleType, how: str, kind: type[Exception] | None
) -> None:
    """If an error names no exception, its class is PulljobsError. Nested classes are found."""
    result = tasks.end.enqueue(how)
    drain(delayed=True)
    [*_, error] = tasks.end.get_result(result.id).errors
    assert error.exception_class is (kind or tasks.Place.DoesNotExist)


@pytest.mark.parametrize(
    ("settle", "kind"),
    [
        (lambda held: outcomes.time_out(held, "ran for 3.0 s, over its timeout"), TimeoutError),
        (lambda held: outcomes.retry(held, "Lease expired: the worker died."), PulljobsError),
        (lambda held: outcomes.retry(held, "locked"), PulljobsError),
        (lambda held: outcomes.retry(held, "print"), PulljobsError),
        (lambda held: outcomes.retry(held, "2.0: no longer"), PulljobsError),
    ],
)
def test_an_error_without_an_exception_gets_one_that_states_the_reason(
    tasks: ModuleType, settle: Callable[[Held], Settlement], kind: type[Exception]
) -> None:
    [consumer, _receipts] = handlers.sync_consumers()
    result = tasks.add.enqueue(2, 2)
    Consumer.objects.update(max_retries=0)
    claim = pulling.Puller(USING, consumer).claim(1)
    assert claim.taken
    held = Held(ids.decode(result.id), claim.taken.lease_token)
    pulling.finish([settle(held)], lambda: {held.job_id: ("tasks-default-default", "tasks")})
    [error] = tasks.add.get_result(result.id).errors
    assert error.exception_class is kind


def test_a_task_knows_its_attempt(tasks: ModuleType) -> None:
    result = tasks.attempts.enqueue(until=3)
    runs = drain(delayed=True)
    assert [run.job.state for run in runs] == [State.QUEUED, State.QUEUED, State.DELIVERED]
    assert tasks.attempts.get_result(result.id).return_value == [3, result.id]


def test_attempts_start_at_zero_after_a_redrive(tasks: ModuleType) -> None:
    result = tasks.fail.enqueue("no luck")
    counts = []
    for _round in range(2):
        counts.append(len(drain(delayed=True)))
        counts.append(tasks.fail.get_result(result.id).attempts)
        operating.redrive([ids.decode(result.id)])
    counts.append(tasks.fail.get_result(result.id).attempts)
    assert counts == [3, 3, 3, 3, 0]


def test_a_released_run_is_no_attempt(tasks: ModuleType) -> None:
    [consumer, _receipts] = handlers.sync_consumers()
    result = tasks.attempts.enqueue(until=1)
    [held] = claimed(consumer)
    pulling.finish([outcomes.release(held)])
    drain()
    assert tasks.attempts.get_result(result.id).return_value == [1, result.id]
    assert tasks.attempts.get_result(result.id).attempts == 1


def test_a_first_run_looks_through_no_history(tasks: ModuleType) -> None:
    result = tasks.attempts.enqueue(until=1)
    with CaptureQueriesContext(connections[USING]) as queries:
        drain()
    assert not any("pulljobs_attempt" in query["sql"] for query in queries)
    assert tasks.attempts.get_result(result.id).return_value == [1, result.id]


@pytest.mark.parametrize("tasks", [{"ack_policy": "ack_first"}], indirect=True)
def test_a_run_that_is_settled_before_it_begins_is_an_attempt(tasks: ModuleType) -> None:
    attempts: list[int] = []

    def receive(signal: Signal, task_result: Any, **kwargs: Any) -> None:
        attempts.append(task_result.attempts)

    task_started.connect(receive)
    try:
        tasks.add.enqueue(1, 1)
        drain()
    finally:
        task_started.disconnect(receive)
    assert attempts == [1]


def test_others_may_listen_to_the_channel(tasks: ModuleType) -> None:
    """Other consumers get a copy of a task. Its result is that of the consumer that runs tasks."""
    ConsumerFactory.create(channel__name="tasks-default-default", name="another")
    handlers.sync_consumers()
    result = tasks.add.enqueue(2, 2)
    drain(consumer="tasks")
    assert tasks.add.get_result(result.id).return_value == 4
    assert Job.objects.get().consumer.name == "another"


@pytest.mark.parametrize("others", [1, 2])
def test_a_task_is_published_to_its_own_consumer_even_if_others_came_first(
    tasks: ModuleType, others: int
) -> None:
    """Consumers that a channel had before its first task get a copy, and the task still runs."""
    channel = ChannelFactory.create(name="tasks-default-default")
    ConsumerFactory.create_batch(others, channel=channel)
    result = tasks.add.enqueue(2, 2)
    drain(consumer="tasks")
    assert tasks.add.get_result(result.id).return_value == 4
    assert (Message.objects.count(), Job.objects.count()) == (1, others)


def test_the_handler_of_another_consumer_does_not_run_tasks(tasks: ModuleType) -> None:
    """A task runs in the handler of tasks, even if its process registered only another handler."""
    with registry_of_its_own():
        handlers.handler(channel="tasks-default-default", consumer="audit")(print)
        handlers.sync_consumers()
        result = tasks.add.enqueue(2, 2)
        drain(consumer="tasks")
    assert tasks.add.get_result(result.id).return_value == 4


@pytest.mark.parametrize("others", [0, 1])
def test_a_task_is_refused_if_its_consumer_was_deleted(tasks: ModuleType, others: int) -> None:
    handlers.sync_consumers()
    Consumer.objects.update(deleted_at=timezone.now())
    channel = Channel.objects.get(name="tasks-default-default")
    ConsumerFactory.create_batch(others, channel=channel)
    with transaction.atomic(using=USING):
        with pytest.raises(ConfigurationError, match="restore the consumer"):
            tasks.add.enqueue(2, 2)
        assert not Message.objects.exists(), "the caller's transaction goes on"
    assert not Job.objects.exists()


@pytest.mark.parametrize("unknown", ["", "nonsense", ids.encode(1 << 60), UUID(int=1), None, 7])
def test_an_unknown_result_does_not_exist(tasks: ModuleType, unknown: Any) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(unknown)


TASK: Any = {
    "task": "os.remove",
    "backend": "default",
    "queue": "default",
    "args": [],
    "kwargs": {},
}


@pytest.mark.parametrize("payload", [b"\xff", {"a": 1}, [], TASK])
def test_a_job_that_is_no_task_has_no_result(tasks: ModuleType, payload: Any) -> None:
    """An ordinary message has no result, even if it names a function, which is not imported."""
    consumer = ConsumerFactory.create(name="tasks")
    [job] = publish(consumer.channel.name, payload).job_ids
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(ids.encode(job))


@pytest.mark.parametrize("payload", [b"\xff", {"a": 1}, [], b"[" * 9_000])
def test_messages_of_other_programs_are_no_tasks(tasks: ModuleType, payload: Any) -> None:
    handlers.sync_consumers()
    [job] = publish("tasks-default-default", payload).job_ids
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(ids.encode(job))


@pytest.mark.parametrize(
    "odd",
    [
        {"task": "tests.tasks_backend.declared.gone"},
        {"task": "tests.tasks_backend.gone.add"},
        {"task": "os.remove"},
        {"task": "."},
        {"task": 5},
        {"backend": "gone"},
        {"queue": "gone"},
        {"args": {}},
        {"priority": "x"},
        {"run_after": "tomorrow"},
    ],
)
def test_a_task_that_no_longer_exists_has_no_result(tasks: ModuleType, odd: dict[str, Any]) -> None:
    """A message with wrong or outdated fields raises TaskResultDoesNotExist and no other error."""
    handlers.sync_consumers()
    task = TASK | {"task": "tests.tasks_backend.declared.add"}
    [job] = publish("tasks-default-default", task | odd).job_ids
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(ids.encode(job))


def test_a_task_of_an_earlier_release_has_a_result(tasks: ModuleType) -> None:
    """A message without priority and time, as earlier releases wrote it, has a result."""
    handlers.sync_consumers()
    task = TASK | {"task": "tests.tasks_backend.declared.greet", "queue": "receipts"}
    [job] = publish("tasks-default-receipts", task | {"args": ["Ann"]}).job_ids
    drain()
    result = task_backends["default"].get_result(ids.encode(job))
    assert (result.return_value, result.task.priority) == ({"hello": "Ann"}, 10)


def test_copies_for_other_consumers_are_no_tasks(tasks: ModuleType) -> None:
    handlers.sync_consumers()
    channel = Channel.objects.get(name="tasks-default-default")
    other = ConsumerFactory.create(channel=channel)
    tasks.add.enqueue(2, 2)
    copy = Job.objects.get(consumer=other)
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(ids.encode(copy.pk))


def test_a_result_is_gone_when_its_message_is_dropped(tasks: ModuleType) -> None:
    result = tasks.add.enqueue(1, 1)
    query("DELETE FROM pulljobs_message")
    with pytest.raises(TaskResultDoesNotExist):
        tasks.add.get_result(result.id)


def test_arguments_that_json_cannot_say_are_refused(tasks: ModuleType) -> None:
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(TypeError):
        tasks.add.enqueue(object(), 1)
    for value in (float("nan"), b"\xff", deep):
        with pytest.raises(ValueError, match=r"can't be encoded|Unsupported value"):
            tasks.add.enqueue(value, 1)
    assert not Message.objects.exists()


def test_a_worker_finds_the_handlers_of_every_queue(tasks: ModuleType) -> None:
    handlers._registered.clear()
    importlib.reload(importlib.import_module("pulljobs.pull_handlers"))
    assert set(handlers._registered) == {
        ("tasks-default-default", "tasks"),
        ("tasks-default-receipts", "tasks"),
    }


def test_queues_have_to_be_named() -> None:
    [error] = PullJobsBackend("default", {"QUEUES": []}).check()
    assert error.id == "pulljobs.E030"
    assert PullJobsBackend("default", {}).check() == []


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"OPTIONS": {"max_retry": 3}}, "did you mean 'max_retries'?"),
        ({"OPTIONS": {"ack_policy": "never"}}, "'never' is no ack_policy"),
        ({"OPTIONS": {"on_giving_up": print}}, "The backend uses on_giving_up itself"),
        ({"OPTIONS": {"ack_policy": "manual"}}, "with ack_policy 'manual' no task would succeed"),
        ({"OPTIONS": {"transactional": True, "ack_policy": "ack_first"}}, "not both"),
        ({"OPTIONS": ["max_retries"]}, "'list' object is not a mapping"),
        ({"QUEUES": ["default", "a/b"]}, "'tasks-default-a/b': The id must have"),
    ],
)
def test_a_check_reports_options_that_no_worker_could_serve(
    given: dict[str, Any], reason: str
) -> None:
    """A mistake is reported once for all queues, and the check leaves no handler registered."""
    backend = PullJobsBackend("default", {"QUEUES": ["default", "receipts"], **given})
    with registry_of_its_own():
        [error] = backend.check()
        assert list(handlers.registered()) == []
    assert (error.id, reason in error.msg) == ("pulljobs.E031", True), error.msg


BROKEN = """
import django
from django.conf import settings
from django.core.checks import run_checks
apps = ["django.contrib.contenttypes", "django.contrib.postgres", "pulljobs", *{apps}]
ours = {{"BACKEND": "pulljobs.tasks_backend.PullJobsBackend", "OPTIONS": {{"max_retry": 3}}}}
settings.configure(INSTALLED_APPS=apps, TASKS={{"default": ours}}, USE_TZ=True, SECRET_KEY="x")
django.setup()
print([problem.id for problem in run_checks()])
"""


def test_the_check_runs_without_an_import_of_tasks() -> None:
    """Wrong OPTIONS are reported even if no code of the project has imported Django's tasks."""
    apps = [] if find_spec("django.tasks") else ["django_tasks"]
    process = subprocess.run(
        [sys.executable, "-c", BROKEN.format(apps=apps)], capture_output=True, text=True, check=True
    )
    assert "pulljobs.E031" in process.stdout


def test_a_check_reports_backends_that_share_a_channel() -> None:
    """Backends that share a channel are an error: the OPTIONS of the last would apply to both."""
    ours = {"BACKEND": "pulljobs.tasks_backend.PullJobsBackend"}
    backends = {
        "default": ours,
        "a": {**ours, "QUEUES": ["b-c", "d"]},
        "a-b": {**ours, "QUEUES": ["c", "d"]},
    }
    with override_settings(TASKS=backends):
        reload_backends()
        problems = [problem for backend in task_backends.all() for problem in backend.check()]
    reload_backends()
    [error] = problems
    assert error.id == "pulljobs.E032"
    assert "TASKS['a'] and TASKS['a-b'] share the channel 'tasks-a-b-c'" in error.msg


@modify_settings(INSTALLED_APPS={"remove": ["pulljobs"]})
def test_without_the_app_there_are_no_tasks() -> None:
    [error] = PullJobsBackend("default", {}).check()
    assert error.id == "pulljobs.E033"
