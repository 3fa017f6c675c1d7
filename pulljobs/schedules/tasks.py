"""Schedules that run tasks of `django.tasks`: they publish the message that `enqueue` would."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from pulljobs.conf import settings
from pulljobs.errors import InvalidSchedule
from pulljobs.schedules.declaring import declare
from pulljobs.schedules.editing import create
from pulljobs.schedules.models import Schedule
from pulljobs.tasks_backend import PullJobsBackend, enqueueing, results
from pulljobs.tasks_backend.interface import AnyTask, Task


def create_for_task(
    name: str,
    task: AnyTask,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Schedule:
    """Create a schedule that runs a task with these arguments at each slot.

    The options are the rule and the policies of `create`. The priority is that of the task. Join
    the caller's transaction. Raise what `create` raises, InvalidSchedule for a task of another
    backend or with a `run_after`, and TypeError or ValueError if an argument is not JSON.
    """
    channel, payload = content_of(task, args, kwargs)
    with transaction.atomic(using=settings().DATABASE):
        enqueueing.subscribe(_backend_of(task), task.queue_name)
        return create(name, channel, payload, priority=payload["priority"], **options)


def declare_for_task(
    name: str,
    task: AnyTask,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Declare in code a schedule that runs a task, with the arguments of `create_for_task`.

    Workers create its row when they start, as for `declare`.
    """
    channel, payload = content_of(task, args, kwargs)
    declare(name, channel, payload, priority=payload["priority"], **options)


def content_of(
    task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> tuple[str, dict[str, Any]]:
    """Return the channel and the payload with which `enqueue` would publish a task.

    Raise what `create_for_task` raises for a task.
    """
    if not isinstance(task, Task):
        raise InvalidSchedule("task", f"task must be a task of Django, not {task!r}.")
    backend = _backend_of(task)
    if task.run_after is not None:
        raise InvalidSchedule("task", "The rule says when a task runs: leave out run_after.")
    payload = enqueueing.make_content(task, args, kwargs or {})
    return backend.channel_of(task.queue_name), payload


def find_missing(payload: bytes) -> str | None:
    """Return the name of the task in a payload if no such task can be imported, else None.

    The name is empty if the payload has none.
    """
    name = ""
    try:
        content = json.loads(payload)
        name = str(content["task"])
        results.task_of(content)
    except (KeyError, *results.NO_TASK):
        return name
    return None


def _backend_of(task: AnyTask) -> PullJobsBackend:
    backend = task.get_backend()
    if not isinstance(backend, PullJobsBackend):
        raise InvalidSchedule(
            "task", f"Task {task.module_path} has another backend: use one of pulljobs."
        )
    return backend
