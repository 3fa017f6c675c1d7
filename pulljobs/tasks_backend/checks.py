"""What is wrong with backends: told before a worker, or the first task, fails for it."""

from collections.abc import Iterator

from django.core.checks import CheckMessage, Error

from pulljobs import handlers
from pulljobs.errors import ConfigurationError
from pulljobs.tasks_backend import handler
from pulljobs.tasks_backend.backend import PullJobsBackend
from pulljobs.tasks_backend.interface import task_backends


def problems(backend: PullJobsBackend) -> Iterator[CheckMessage]:
    refusals = (_refusal(backend, queue) for queue in sorted(backend.queues))
    for refusal in dict.fromkeys(filter(None, refusals)):
        yield Error(
            f"TASKS[{backend.alias!r}]: {refusal}",
            hint="OPTIONS are keywords of @pulljobs.handlers.handler, and each queue is a channel.",
            id="pulljobs.E031",
        )
    for other in task_backends.all():
        if isinstance(other, PullJobsBackend) and other.alias < backend.alias:
            yield from _shared(other, backend)


def _refusal(backend: PullJobsBackend, queue: str) -> str:
    try:
        handlers.check(handler.handler_of(backend, queue))
    except (ConfigurationError, TypeError) as error:
        return str(error)
    return ""


def _shared(*backends: PullJobsBackend) -> Iterator[CheckMessage]:
    one, other = ({each.channel_of(queue) for queue in each.queues} for each in backends)
    for channel in sorted(one & other):
        yield Error(
            f"{' and '.join(f'TASKS[{each.alias!r}]' for each in backends)} have one channel, "
            f"{channel!r}: the tasks of both would go by the OPTIONS of one.",
            hint="Give an alias or a queue another name.",
            id="pulljobs.E032",
        )
