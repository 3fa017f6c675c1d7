"""Schedules of Django's tasks: the message is that of an enqueued task."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from pulljobs.conf import settings
from pulljobs.errors import InvalidSchedule
from pulljobs.schedules.editing import create
from pulljobs.schedules.models import Schedule
from pulljobs.tasks_backend import PullJobsBackend, enqueueing
from pulljobs.tasks_backend.interface import AnyTask, Task


def create_for_task(
    name: str,
    task: AnyTask,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Schedule:
    """Create a schedule that runs a task with these arguments at each slot.

    The options are those of `create` that belong to the rule and its policies. The priority is the
    task's. Joins the caller's transaction. Raises what `create` raises, InvalidSchedule for a task
    of another backend or with a `run_after`, and TypeError if an argument is not JSON.
    """
    if not isinstance(task, Task):
        raise InvalidSchedule("task", f"task must be a task of Django, not {task!r}.")
    backend = task.get_backend()
    if not isinstance(backend, PullJobsBackend):
        raise InvalidSchedule(
            "task", f"Task {task.module_path} has another backend: use one of pulljobs."
        )
    if task.run_after is not None:
        raise InvalidSchedule("task", "The rule says when a task runs: leave out run_after.")
    payload = enqueueing.make_content(task, args, kwargs or {})
    with transaction.atomic(using=settings().DATABASE):
        channel = enqueueing.subscribe(backend, task.queue_name)
        return create(name, channel, payload, priority=task.priority, **options)
