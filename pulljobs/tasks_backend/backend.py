"""The backend: no models before its use, for tasks are declared while apps are being loaded."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.apps import apps
from django.core.checks import CheckMessage, Error

from pulljobs.tasks_backend.interface import AnyResult, AnyTask, BaseTaskBackend, task_enqueued

CONSUMER: Final = "tasks"


class PullJobsBackend(BaseTaskBackend):
    """QUEUES names the queues, each a channel `tasks-ALIAS-QUEUE`.

    OPTIONS are keywords of `pulljobs.handlers.handler`: `transactional`, `timeout`, `backoff`, and
    fields of the consumer such as `max_retries`.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def channel_of(self, queue: str) -> str:
        return f"tasks-{self.alias}-{queue}"

    def enqueue(  # type: ignore[override]  # the stubs bind the result to the types of the task
        self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AnyResult:
        """Publish it in the caller's transaction; TypeError for arguments that JSON can't say."""
        from pulljobs.tasks_backend import enqueueing

        self.validate_task(task)
        result = enqueueing.enqueue(self, task, args, kwargs)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> AnyResult:
        """By the public id of its job, which is one of this backend's queues.

        TaskResultDoesNotExist once its message was dropped.
        """
        from pulljobs.tasks_backend import results

        return results.read(self, result_id)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        if not self.queues:
            return [self._no_queues()]
        if not apps.is_installed("pulljobs"):
            return [self._no_app()]
        from pulljobs.tasks_backend import checks

        return [*super().check(**kwargs), *checks.problems(self)]

    def _no_queues(self) -> CheckMessage:
        return Error(
            f"TASKS[{self.alias!r}] names no QUEUES: nobody would know what to work on.",
            hint="Name them, or leave QUEUES out to have the one that is called default.",
            id="pulljobs.E030",
        )

    def _no_app(self) -> CheckMessage:
        return Error(
            f"TASKS[{self.alias!r}] needs pulljobs, which is not in INSTALLED_APPS.",
            hint="Add 'pulljobs' and 'django.contrib.postgres' to it, and migrate.",
            id="pulljobs.E033",
        )
