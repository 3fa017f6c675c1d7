"""Spans of this process, if `TRACING` asks for them (see `spans`); else nothing happens."""

import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any

_is_on = False


def is_installed() -> bool:
    return find_spec("opentelemetry") is not None


def switch(on: bool) -> None:
    """For the whole process; what was traced before a switch stays as it is."""
    global _is_on
    _is_on = on


def publishing(
    channel: str, headers: Sequence[MutableMapping[str, str]]
) -> AbstractContextManager[None]:
    """Around the write of messages with these headers, which may be given more."""
    if not _is_on:
        return nullcontext()
    from pulljobs.engine import spans

    return spans.publishing(channel, headers)


def now() -> int:
    """When something begins that may be told later; in ns since the epoch, by this machine."""
    return time.time_ns() if _is_on else 0


def claimed(
    channel: str, consumer: str, headers: Sequence[Mapping[str, str]], *, began: int
) -> None:
    """What a claim brought."""
    if _is_on:
        from pulljobs.engine import spans

        spans.claimed(channel, consumer, headers, began=began)


def handler(
    function: Callable[[Any], Any], place: tuple[str, str], *, is_async: bool
) -> Callable[[Any], Any]:
    """What does the jobs of that channel and consumer, with a span around each."""
    if not _is_on:
        return function
    from pulljobs.engine import spans

    return spans.traced(function, *place, is_async=is_async)


def delivery(function: Callable[[Any], Any], place: tuple[str, str]) -> Callable[[Any], Any]:
    """The same for what posts them to a push consumer."""
    if not _is_on:
        return function
    from pulljobs.engine import spans

    return spans.traced(function, *place, is_async=True, operation="push", kind=spans.CLIENT)


def within(headers: Mapping[str, str]) -> AbstractContextManager[None]:
    """In the trace of who calls with these headers."""
    if not _is_on:
        return nullcontext()
    from pulljobs.engine import spans

    return spans.within(headers)


def carried() -> dict[str, str]:
    """The headers that bear the context on."""
    if not _is_on:
        return {}
    from pulljobs.engine import spans

    return spans.carried()
