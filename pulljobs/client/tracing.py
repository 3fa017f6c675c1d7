"""Spans if opentelemetry is installed, else nothing."""

from collections.abc import Callable, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any, Final

IS_INSTALLED: Final = find_spec("opentelemetry") is not None


def publishing(
    channel: str, headers: Sequence[MutableMapping[str, str]]
) -> AbstractContextManager[None]:
    """Make a span around a publish. It may add headers to the messages."""
    if not IS_INSTALLED:
        return nullcontext()
    from pulljobs.engine import spans

    return spans.publishing(channel, headers)


def handler(
    function: Callable[[Any], Any], channel: str, consumer: str, *, is_async: bool
) -> Callable[[Any], Any]:
    """Return the function with a span around each call."""
    if not IS_INSTALLED:
        return function
    from pulljobs.engine import spans

    return spans.traced(function, channel, consumer, is_async=is_async)
