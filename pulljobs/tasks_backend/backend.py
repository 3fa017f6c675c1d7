"""Task backend that can be imported before models: tasks are declared while apps are loaded.

Its methods import the modules that need models when they are called.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error

from pulljobs.tasks_backend.interface import AnyResult, AnyTask, ChannelBackend, task_enqueued


class PullJobsBackend(ChannelBackend):
    """Task backend that publishes each task as a message.

    QUEUES names the queues, each with a channel `tasks-ALIAS-QUEUE`. OPTIONS are keywords of
    `pulljobs.handlers.handler`, such as `transactional`, `timeout` and `backoff`, and fields of the
    consumer, such as `max_retries`.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def enqueue(  # type: ignore[override]  # the stubs bind the result to the types of the task
        self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AnyResult:
        """Publish the task in the caller's transaction and return its result, with status READY.

        Raise TypeError or ValueError if an argument can't be stored as JSON, and ConfigurationError
        if the consumer of the queue was deleted.
        """
        from pulljobs.tasks_backend import enqueueing

        self.validate_task(task)
        result = enqueueing.enqueue(self, task, args, kwargs)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> AnyResult:
        """Return the result with this id, the public id of a job of this backend's queues.

        Raise TaskResultDoesNotExist if there is no such job, its message was pruned, or its task no
        longer exists.
        """
        from pulljobs.tasks_backend import results

        return results.read_result(self, result_id)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Return the problems of this backend's settings, for Django's system checks."""
        if not self.queues:
            return [self._no_queues()]
        if not apps.is_installed("pulljobs"):
            return [self._no_app()]
        from pulljobs.tasks_backend import checks

        return [*super().check(**kwargs), *checks.find_problems(self)]

    def _no_queues(self) -> CheckMessage:
        return Error(
            f"TASKS[{self.alias!r}] has no QUEUES, so no worker would run its tasks.",
            hint="Name the queues, or leave QUEUES out to have the queue that is called default.",
            id="pulljobs.E030",
        )

    def _no_app(self) -> CheckMessage:
        return Error(
            f"TASKS[{self.alias!r}] needs pulljobs, which is not in INSTALLED_APPS.",
            hint="Add 'pulljobs' and 'django.contrib.postgres' to INSTALLED_APPS, and migrate.",
            id="pulljobs.E033",
        )
