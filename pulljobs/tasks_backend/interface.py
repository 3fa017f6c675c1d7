"""Names of Django's tasks, from Django 6 or the package `django-tasks`, and a base class."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING or find_spec("django.tasks"):
    from django.tasks import task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskException, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
else:
    from django_tasks import task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import TaskException, TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json

if TYPE_CHECKING:
    from typing import Any

    AnyTask = Task[..., Any]
    AnyResult = TaskResult[..., Any]
else:  # Django's classes are not generic at run time.
    AnyTask, AnyResult = Task, TaskResult

CONSUMER: Final = "tasks"
"""Name of the consumer that runs the tasks of a queue."""


class ChannelBackend(BaseTaskBackend):
    """Base class of the backend, in a module of its own to avoid an import cycle."""

    def channel_of(self, queue: str) -> str:
        """Return the name of the channel on which the tasks of a queue are published."""
        return f"tasks-{self.alias}-{queue}"


__all__ = [
    "CONSUMER",
    "AnyResult",
    "AnyTask",
    "BaseTaskBackend",
    "ChannelBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskException",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
