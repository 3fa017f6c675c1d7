"""System check of Django for the schedules that the project declares in code."""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, Warning, register

from pulljobs.conf import WORKER_CHECKS, settings
from pulljobs.errors import ConfigurationError, PulljobsError

if TYPE_CHECKING:
    from pulljobs.schedules.definitions import Definition

TASK_CONSUMER: Final = "tasks"
"""Name of the consumer that runs Django's tasks."""


@register(WORKER_CHECKS)
def check_declarations(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Report wrong schedules among those that `pull_handlers` modules of installed apps declare."""
    # Processes that run no check, such as web servers, do not load these modules.
    from pulljobs import handlers
    from pulljobs.schedules import declaring

    if not _has_valid_settings():
        return []  # The check of the settings reports that.
    with declaring.collecting_errors() as refused:
        try:
            handlers.autodiscover()
        except Exception as error:  # The code of the project may raise anything.
            return [_not_imported(error)]
    problems = [_refused(name, error) for name, error in refused]
    consumers = {handler.names for handler in handlers.registered()}
    for definition in declaring.declared().values():
        problems += _useless(definition, consumers)
    return problems


def _has_valid_settings() -> bool:
    try:
        settings()
    except ConfigurationError:
        return False
    return True


def _refused(name: str, error: PulljobsError) -> CheckMessage:
    subject = f"schedule {name!r}"
    if isinstance(error, ConfigurationError):
        return Error(str(error), obj=subject, id="pulljobs.E036")
    return Error(str(error), obj=subject, id="pulljobs.E035")


def _not_imported(error: Exception) -> CheckMessage:
    return Warning(
        f"A pull_handlers module can't be imported, so schedules are not checked: {error!r}.",
        hint="A worker would not start. Import the module in `manage.py shell` to see where.",
        id="pulljobs.W013",
    )


def _useless(
    definition: "Definition", consumers: Collection[tuple[str, str]]
) -> Iterator[CheckMessage]:
    """Report a schedule on a channel without handler, or of a Django task that does not exist.

    `consumers` are the (channel, consumer) of all registered handlers.
    """
    subject, channel = f"schedule {definition.name!r}", definition.channel
    if channel not in {served for served, _consumer in consumers}:
        yield Warning(
            f"No handler has the channel {channel!r}: nothing here runs the messages.",
            hint="Correct the channel, or silence this check if clients pull it over HTTP.",
            obj=subject,
            id="pulljobs.W012",
        )
    elif (channel, TASK_CONSUMER) in consumers and channel.startswith("tasks-"):
        yield from _missing_task(definition, subject)


def _missing_task(definition: "Definition", subject: str) -> Iterator[CheckMessage]:
    from pulljobs.schedules.tasks import find_missing  # needs django.tasks

    task = find_missing(definition.stored_payload())
    if task is not None:
        yield Error(
            f"The payload names the task {task!r}, which does not exist: each job would fail.",
            hint="Declare the schedule with the task itself: schedules.declare_for_task.",
            obj=subject,
            id="pulljobs.E037",
        )
