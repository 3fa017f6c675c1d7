"""System checks of task backends: settings with which workers or tasks would fail."""

from collections.abc import Iterator

from django.core.checks import CheckMessage, Error

from pulljobs import handlers
from pulljobs.errors import ConfigurationError
from pulljobs.tasks_backend.handler import make_handler
from pulljobs.tasks_backend.interface import ChannelBackend, task_backends


def find_problems(backend: ChannelBackend) -> Iterator[CheckMessage]:
    """Yield errors in the backend's OPTIONS, and channel names that another backend has, too."""
    problems = (_problem(backend, queue) for queue in sorted(backend.queues))
    for problem in dict.fromkeys(filter(None, problems)):
        yield Error(
            f"TASKS[{backend.alias!r}]: {problem}",
            hint="OPTIONS are keywords of @pulljobs.handlers.handler, and each queue is a channel.",
            id="pulljobs.E031",
        )
    for other in task_backends.all():
        if isinstance(other, ChannelBackend) and other.alias < backend.alias:
            yield from _shared_channels(other, backend)


def _problem(backend: ChannelBackend, queue: str) -> str:
    try:
        handlers.check(make_handler(backend, queue))
    except (ConfigurationError, TypeError) as error:
        return str(error)
    return ""


def _shared_channels(*backends: ChannelBackend) -> Iterator[CheckMessage]:
    first, second = (
        {backend.channel_of(queue) for queue in backend.queues} for backend in backends
    )
    aliases = " and ".join(f"TASKS[{backend.alias!r}]" for backend in backends)
    for channel in sorted(first & second):
        yield Error(
            f"{aliases} share the channel {channel!r}: the OPTIONS of one would apply to the tasks "
            "of both.",
            hint="Rename an alias or a queue.",
            id="pulljobs.E032",
        )
