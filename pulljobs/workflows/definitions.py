"""Workflows: functions over a run, registered as handlers of their consumers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import Any, Final, TypeVar

from asgiref.sync import iscoroutinefunction

from pulljobs import handlers
from pulljobs.errors import ConfigurationError
from pulljobs.handlers import AckPolicy, ClaimedJob, Handler
from pulljobs.models.options import check_function, name_of

F = TypeVar("F", bound=Callable[..., Any])

POLICIES: Final = (AckPolicy.NACK_ON_ERROR, AckPolicy.REJECT_ON_ERROR)
HIGHEST_VERSION: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """Function over a run, with the consumer whose jobs are its runs."""

    name: str
    channel: str
    consumer: str
    function: Callable[..., Any]
    version: int
    oldest_version: int
    """Oldest version of runs that this code accepts. It leaves older runs to other workers."""
    is_async: bool


_registered: dict[tuple[str, str], Workflow] = {}


def workflow(
    *,
    channel: str,
    consumer: str,
    version: int = 1,
    oldest_version: int = 1,
    ack_policy: AckPolicy = AckPolicy.NACK_ON_ERROR,
    timeout: timedelta | None = None,
    on_giving_up: Callable[[ClaimedJob], Any] | None = None,
    backoff: bool = True,
    **defaults: Any,
) -> Callable[[F], F]:
    """Register the function as the workflow of that consumer: each of its jobs is a run.

    The function gets a `Run`, or an `AsyncRun` if it is async. Its return value is the result of
    the run. A run keeps the `version` of the code that claimed it first until it begins again, as
    by `continue_as`. Runs of a version below `oldest_version` or above `version` go back to the
    queue for workers with other code. The other options are those of `@handler`. Raise
    ConfigurationError for options that can't work.
    """

    def register(function: F) -> F:
        check_function("@workflow", function)
        made = Workflow(
            name=name_of(function)[-200:],
            channel=channel,
            consumer=consumer,
            function=function,
            version=version,
            oldest_version=oldest_version,
            is_async=iscoroutinefunction(function),
        )
        _check(made, ack_policy, defaults)
        handlers.add(
            Handler(
                channel=channel,
                consumer=consumer,
                function=_handler_of(made),
                ack_policy=ack_policy,
                timeout=timeout,
                on_giving_up=on_giving_up,
                backoff=backoff,
                defaults=defaults,
                is_fenced=True,
            )
        )
        _registered[channel, consumer] = made
        return function

    return register


def registered() -> Iterator[Workflow]:
    """Yield the registered workflows in the order of their registration."""
    yield from _registered.values()


def find(function: Callable[..., Any]) -> Workflow:
    """Return the workflow that was first registered for a function, or raise ConfigurationError."""
    for each in registered():
        if each.function == function:
            return each
    name = name_of(function) if callable(function) else repr(function)
    raise ConfigurationError(f"{name} is no workflow: decorate it with @workflow.")


def _handler_of(made: Workflow) -> Callable[[ClaimedJob], Any]:
    """Return a handler function that performs a workflow, with the name of the workflow."""
    if made.is_async:

        async def ahandle(job: ClaimedJob) -> Any:
            from pulljobs.workflows.performing import aperform_run

            return await aperform_run(made, job)

        return wraps(made.function)(ahandle)

    def handle(job: ClaimedJob) -> Any:
        from pulljobs.workflows.performing import perform_run

        return perform_run(made, job)

    return wraps(made.function)(handle)


def _check(made: Workflow, ack_policy: AckPolicy | str, defaults: dict[str, Any]) -> None:
    if ack_policy not in POLICIES:
        raise ConfigurationError(
            f"{made.name} is a workflow with ack_policy {str(ack_policy)!r}, but a run needs its "
            f"lease until it ends: use {' or '.join(POLICIES)}."
        )
    if "transactional" in defaults:
        raise ConfigurationError(
            f"{made.name} is a workflow and transactional: leave that out, and put the writes that "
            "belong together into run.atomic."
        )
    for name, value in (("version", made.version), ("oldest_version", made.oldest_version)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigurationError(
                f"{made.name}: {name} must be a whole number from 1 on, not {value!r}."
            )
    if not made.oldest_version <= made.version <= HIGHEST_VERSION:
        raise ConfigurationError(
            f"{made.name}: version must be at least oldest_version ({made.oldest_version}), "
            f"not {made.version}."
        )
