"""Results of tasks, made from live and archived jobs."""

import builtins
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from operator import itemgetter
from pkgutil import resolve_name
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured, SuspiciousOperation
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.module_loading import import_string

from pulljobs import ids, jobs
from pulljobs.conf import settings
from pulljobs.errors import PulljobsError, UnknownJob
from pulljobs.models import ArchivedJob, Attempt, Consumer, Job, Lease, Message
from pulljobs.states import Event, Reason, State
from pulljobs.storage.rows import JobView
from pulljobs.tasks_backend.interface import (
    CONSUMER,
    AnyResult,
    AnyTask,
    ChannelBackend,
    Task,
    TaskError,
    TaskException,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)

CONTENT: Final = {"task": str, "backend": str, "queue": str, "args": list, "kwargs": dict}
NO_TASK: Final = (
    ImportError,
    TypeError,
    ValueError,
    RecursionError,  # JSON that is nested too deep
    SuspiciousOperation,
    ImproperlyConfigured,
    TaskException,
)
"""Errors of content that names no task, or a task that no longer exists."""
STATUS: Final = {
    State.QUEUED: TaskResultStatus.READY,
    State.INFLIGHT: TaskResultStatus.RUNNING,
    State.DELIVERED: TaskResultStatus.SUCCESSFUL,
    State.DEAD: TaskResultStatus.FAILED,
}
DOTTED: Final = re.compile(r"\w+(\.\w+)+")
UNNAMED: Final[Mapping[str | None, str]] = {
    Reason.TIMED_OUT: "builtins.TimeoutError",
    Reason.REJECTED: "pulljobs.errors.Discard",
}
"""Exception classes for errors that name none, by the reason why the job is DEAD."""


class TaskRun(NamedTuple):
    """Run of a task: the node that ran it, when it began, and its error if it failed."""

    node_id: UUID | None
    begun_at: datetime
    error: str | None = None

    @property
    def worker_id(self) -> str:
        """Id of the node, or "" for a run without one, such as that of `drain` in a test."""
        return str(self.node_id or "")


class JobError(TaskError):
    """Error of a task's run, stored as text that need not begin with an exception class."""

    @property
    def exception_class(self) -> type[BaseException]:
        """Exception class that the text names, or PulljobsError if it can't be resolved."""
        try:
            named = resolve_name(self.exception_class_path)
        except (ImportError, AttributeError, ValueError):
            return PulljobsError
        is_exception = isinstance(named, type) and issubclass(named, BaseException)
        return named if is_exception else PulljobsError


def read_result(backend: ChannelBackend, result_id: str) -> AnyResult:
    """Return the result of the task that a job of the backend runs.

    Raise TaskResultDoesNotExist if there is no such job, its message was pruned, or its task no
    longer exists.
    """
    try:
        view = jobs.get(ids.decode(result_id))
    except (TypeError, ValueError, UnknownJob) as error:  # TypeError: the id is no text.
        raise TaskResultDoesNotExist(result_id) from error
    message = Message.objects.using(settings().DATABASE).filter(id=view.message_id).first()
    content = _content(message) if message and _is_task(backend, view) else None
    if message is None or content is None:
        raise TaskResultDoesNotExist(result_id)
    try:
        task = task_of(content)
    except NO_TASK as error:
        raise TaskResultDoesNotExist(result_id) from error
    return _result_of(view, task, content)


def new_result(task: AnyTask, content: Mapping[str, Any], **fields: Any) -> AnyResult:
    """Return the result of a task with its arguments. Fields not given are None or empty."""
    blank = {"started_at": None, "finished_at": None, "last_attempted_at": None}
    given: dict[str, Any] = {"args": content["args"], "kwargs": content["kwargs"]}
    lists: dict[str, Any] = {"errors": [], "worker_ids": []}
    return TaskResult(task=task, backend=task.backend, **given | blank | lists | fields)


def ready_result(task: AnyTask, content: Mapping[str, Any], job_id: int) -> AnyResult:
    """Return the result of a task that was just enqueued as this job."""
    return new_result(
        task,
        content,
        id=ids.encode(job_id),
        status=TaskResultStatus.READY,
        enqueued_at=ids.time_of(job_id),
    )


def task_of(content: Mapping[str, Any]) -> AnyTask:
    """Return the task of a payload, with queue, priority and `run_after` as it was enqueued.

    Raise KeyError or one of `NO_TASK` for content that names no task.
    """
    task = import_string(content["task"])
    if not isinstance(task, Task):
        raise SuspiciousOperation(f"{content['task']!r} is not a task.")
    run_after = content.get("run_after")
    return task.using(
        backend=content["backend"],
        queue_name=content["queue"],
        priority=content.get("priority"),
        run_after=None if run_after is None else datetime.fromisoformat(run_after),
    )


def succeed(result: AnyResult, value: Any) -> None:
    """Make a result SUCCESSFUL in place, although its dataclass is frozen."""
    object.__setattr__(result, "status", TaskResultStatus.SUCCESSFUL)
    object.__setattr__(result, "finished_at", timezone.now())
    object.__setattr__(result, "_return_value", value)


def fail(result: AnyResult, text: str, reason: str | None = None) -> None:
    """Make a result FAILED in place, and append an error made from `text` and `reason`.

    `reason` is why the job is DEAD. It gives the error its class if the text names none.
    """
    object.__setattr__(result, "status", TaskResultStatus.FAILED)
    object.__setattr__(result, "finished_at", timezone.now())
    result.errors.append(_error(text, reason))


def errors_of(runs: Iterable[TaskRun]) -> list[TaskError]:
    """Return the errors of the runs that failed."""
    return [_error(run.error, None) for run in runs if run.error]


def read_runs(job_id: int, deliveries: int) -> list[TaskRun]:
    """Return the runs of a job's task since its last redrive, oldest first, as far as known.

    `deliveries` is the number of claims since then, without released ones. The start of a run is
    the time of its claim if no worker has reported it, because workers claim only jobs that start
    within half a second.
    """
    using = settings().DATABASE
    ended = Attempt.objects.using(using).filter(job_id=job_id).exclude(event=Event.RELEASE)
    settled = ArchivedJob.objects.using(using).filter(job_id=job_id)
    held = (
        Job.objects.using(using).filter(id=job_id, lease_token__isnull=False).values("lease_token")
    )
    now = Lease.objects.using(using).filter(lease_token__in=held)
    past = sorted(
        chain.from_iterable(
            rows.annotate(begun_at=Coalesce("started_at", "claimed_at")).values_list(
                "id", "lease_token", "node_id", "begun_at", "error"
            )
            for rows in (ended, settled)
        ),
        key=itemgetter(0),
    )
    claims = [row[1:] for row in past]
    claims += [(*row, None) for row in now.values_list("lease_token", "node_id", "claimed_at")]
    by_token = {token: TaskRun(*run) for token, *run in claims if token}
    runs = [*by_token.values()]
    return runs[max(0, len(runs) - deliveries) :]


def first_worker(token: UUID) -> list[str]:
    """Return a list with the worker id of the run of a claim, empty if its lease is gone."""
    leases = Lease.objects.using(settings().DATABASE).filter(lease_token=token)
    claims = leases.values_list("node_id", "claimed_at")[:1]
    return [TaskRun(*claim).worker_id for claim in claims]


def _is_task(backend: ChannelBackend, view: JobView) -> bool:
    channels = map(backend.channel_of, backend.queues)
    own = Consumer.objects.using(settings().DATABASE).filter(name=CONSUMER)
    return own.filter(id=view.consumer_id, channel__name__in=list(channels)).exists()


def _content(message: Message) -> Mapping[str, Any] | None:
    """Return the parsed payload of a task, or None if it is not the payload of a task."""
    try:
        content = json.loads(bytes(message.payload))
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    is_ours = all(isinstance(content.get(name), kind) for name, kind in CONTENT.items())
    return content if is_ours else None


def _result_of(view: JobView, task: AnyTask, content: Mapping[str, Any]) -> AnyResult:
    status, runs = STATUS[view.state], read_runs(view.id, view.deliveries)
    result = new_result(
        task,
        content,
        id=ids.encode(view.id),
        status=status,
        enqueued_at=ids.time_of(view.id),
        started_at=runs[0].begun_at if runs else None,
        last_attempted_at=runs[-1].begun_at if runs else None,
        finished_at=view.settled_at,
        errors=_errors(view, runs),
        worker_ids=[run.worker_id for run in runs],
    )
    if status == TaskResultStatus.SUCCESSFUL:
        object.__setattr__(result, "_return_value", view.result)
    return result


def _errors(view: JobView, runs: Sequence[TaskRun]) -> list[TaskError]:
    """Return the errors of all runs, and for a DEAD job the error that ended it, such as a kill."""
    errors = errors_of(runs)
    if view.state != State.DEAD or not view.error:
        return errors
    is_of_last_run = runs and runs[-1].error == view.error
    return [*(errors[:-1] if is_of_last_run else errors), _error(view.error, view.reason)]


def _error(text: str, reason: str | None) -> TaskError:
    """Return an error with this text and the class that its first line or else the reason names."""
    name = text.partition("\n")[0].partition(":")[0].strip()
    if hasattr(builtins, name):
        path = f"builtins.{name}"
    elif DOTTED.fullmatch(name):
        path = name
    else:
        path = UNNAMED.get(reason, "pulljobs.errors.PulljobsError")
    return JobError(exception_class_path=path, traceback=text)
