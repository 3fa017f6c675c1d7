"""Django's tasks as members and as callbacks of batches."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from pulljobs.conf import settings
from pulljobs.errors import InvalidMessage
from pulljobs.models import Job
from pulljobs.tasks_backend import PullJobsBackend, enqueueing, results
from pulljobs.tasks_backend.interface import (
    CONSUMER,
    AnyResult,
    AnyTask,
    Task,
    task_enqueued,
)
from pulljobs.workflows.batches.adding import OpenBatch
from pulljobs.workflows.batches.callbacks import Callback


def enqueue(
    batch: OpenBatch,
    task: AnyTask,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> AnyResult:
    """Enqueue a task as a member of a batch, and return its TaskResult, with status READY.

    Join the caller's transaction. Raise what `OpenBatch.publish` raises, InvalidMessage for a task
    of another backend, TypeError or ValueError if an argument can't be stored as JSON, and
    ConfigurationError if the consumer of the queue was deleted.
    """
    backend = _backend_of(task)
    content = enqueueing.make_content(task, args, kwargs or {})
    using = settings().DATABASE
    with transaction.atomic(using=using):
        channel = enqueueing.subscribe(backend, task.queue_name)
        receipt = batch.publish(
            channel, content, priority=task.priority, available_at=task.run_after
        )
        own = Job.objects.using(using).filter(consumer__name=CONSUMER, id__in=receipt.job_ids)
        job_id = enqueueing.require_job(own.values_list("id", flat=True).first(), channel)
    result = results.ready_result(task, content, job_id)
    task_enqueued.send(type(backend), task_result=result)
    return result


def call_task(
    task: AnyTask, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> Callback:
    """Return a callback that enqueues a task. Create the task's consumer now if it is missing.

    Raise InvalidMessage for a task with `run_after` or of another backend, and TypeError or
    ValueError if an argument can't be stored as JSON.
    """
    backend = _backend_of(task)
    if task.run_after is not None:
        raise InvalidMessage("The batch decides when the task runs: leave out run_after.")
    content = enqueueing.make_content(task, args, kwargs or {})
    channel = enqueueing.subscribe(backend, task.queue_name)
    return Callback(channel, content, priority=task.priority)


def _backend_of(task: AnyTask) -> PullJobsBackend:
    if not isinstance(task, Task):
        raise InvalidMessage(f"task must be a task of Django, not {task!r}.")
    backend = task.get_backend()
    if not isinstance(backend, PullJobsBackend):
        raise InvalidMessage(f"Task {task.module_path} has another backend: use one of pulljobs.")
    return backend
