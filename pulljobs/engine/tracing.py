"""Functions of `spans` that do nothing, and import no OpenTelemetry, while tracing is off."""

import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any

_is_on = False


def is_installed() -> bool:
    return find_spec("opentelemetry") is not None


def switch(on: bool) -> None:
    """Switch tracing on or off for the whole process."""
    global _is_on
    _is_on = on


def publishing(
    channel: str, headers: Sequence[MutableMapping[str, str]]
) -> AbstractContextManager[None]:
    """Return a span around the write of messages. It adds its context to headers without one."""
    if not _is_on:
        return nullcontext()
    from pulljobs.engine import spans

    return spans.publishing(channel, headers)


def now() -> int:
    """Return the time in ns since 1970, as the start of a span, or 0 if tracing is off."""
    return time.time_ns() if _is_on else 0


def claimed(
    channel: str, consumer: str, headers: Sequence[Mapping[str, str]], *, began: int
) -> None:
    """Record the span of a claim. `began` is the time of its start, as `now` has returned it."""
    if _is_on:
        from pulljobs.engine import spans

        spans.claimed(channel, consumer, headers, began=began)


def handler(
    function: Callable[[Any], Any], names: tuple[str, str], *, is_async: bool
) -> Callable[[Any], Any]:
    """Return the handler of a consumer with a span around each call.

    `names` are those of the channel and of the consumer.
    """
    if not _is_on:
        return function
    from pulljobs.engine import spans

    return spans.traced(function, *names, is_async=is_async)


def step(name: str, number: int) -> AbstractContextManager[None]:
    """Return a span around a step of a run, below its handler's. `number` is as in `spans.step`."""
    if not _is_on:
        return nullcontext()
    from pulljobs.engine import spans

    return spans.step(name, number)


def delivery(function: Callable[[Any], Any], names: tuple[str, str]) -> Callable[[Any], Any]:
    """Return the function of a push consumer with a span a call. `names`: channel and consumer."""
    if not _is_on:
        return function
    from pulljobs.engine import spans

    return spans.traced(function, *names, is_async=True, operation="push", kind=spans.CLIENT)


def within(headers: Mapping[str, str]) -> AbstractContextManager[None]:
    """Return a context manager that continues the trace of these headers, unless a span is open."""
    if not _is_on:
        return nullcontext()
    from pulljobs.engine import spans

    return spans.within(headers)


def carried() -> dict[str, str]:
    """Return headers that carry the current trace context, empty without one or without tracing."""
    if not _is_on:
        return {}
    from pulljobs.engine import spans

    return spans.carried()
