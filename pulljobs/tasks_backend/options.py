"""Decorator that gives one task retries and a time limit of its own."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final, TypeVar

from pulljobs import backoff
from pulljobs.errors import ConfigurationError
from pulljobs.run_limits import RunLimits, timeout_problems

ATTRIBUTE: Final = "pulljobs_limits"
MOST_RETRIES: Final = 32767
NO_LIMITS: Final = RunLimits()
Decorated = TypeVar("Decorated")


def task_options(
    bare: object = None,
    /,
    *,
    max_retries: int | None = None,
    retry_strategy: str | None = None,
    timeout: timedelta | None = None,
) -> Callable[[Decorated], Decorated]:
    """Give a task retries and a time limit in place of those of its queue.

    The decorator stands above or below `@task`. Other backends ignore it. An option that is None is
    left to the queue. The strategy `none` allows no retry. If the worker crashes during a task, the
    retry follows the options of the queue. Raise ConfigurationError if a value can't work.
    """
    if bare is not None:
        raise ConfigurationError(
            f"@task_options is above {bare!r} without options: write "
            "@task_options(max_retries=...)."
        )
    given = (max_retries, retry_strategy, timeout)
    if problems := list(_problems(*given)):
        raise ConfigurationError(f"@task_options: {' '.join(problems)}")
    delays = None if retry_strategy is None else backoff.expand(retry_strategy)
    if delays is not None and not delays.seconds:
        max_retries = 0
    limits = RunLimits(max_retries=max_retries, delays=delays, timeout=timeout)

    def decorate(decorated: Decorated) -> Decorated:
        setattr(getattr(decorated, "func", decorated), ATTRIBUTE, limits)
        return decorated

    return decorate


def limits_of(function: Callable[..., Any]) -> RunLimits:
    """Return the limits that `@task_options` gave to a task's function, empty by default."""
    limits: RunLimits = getattr(function, ATTRIBUTE, NO_LIMITS)
    return limits


def _problems(max_retries: object, retry_strategy: object, timeout: object) -> Iterator[str]:
    is_number = isinstance(max_retries, int) and not isinstance(max_retries, bool)
    if max_retries is not None and not (is_number and 0 <= int(str(max_retries)) <= MOST_RETRIES):
        yield f"max_retries must be a number from 0 to {MOST_RETRIES}, not {max_retries!r}."
    if retry_strategy is not None:
        try:
            backoff.expand(str(retry_strategy))
        except ValueError as error:
            yield str(error)
    yield from timeout_problems(timeout)
