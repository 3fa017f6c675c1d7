"""Functions of `pulljobs.engine.spans` that do nothing if OpenTelemetry is not installed."""

from collections.abc import Callable, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any, Final

IS_INSTALLED: Final = find_spec("opentelemetry") is not None


def publishing(
    channel: str, headers: Sequence[MutableMapping[str, str]]
) -> AbstractContextManager[None]:
    """Return a span around a publish, which adds its context to the headers of the messages."""
    if not IS_INSTALLED:
        return nullcontext()
    from pulljobs.engine import spans

    return spans.publishing(channel, headers)


def handler(
    function: Callable[[Any], Any], channel: str, consumer: str, *, is_async: bool
) -> Callable[[Any], Any]:
    """Return the handler of a consumer with a span around each call."""
    if not IS_INSTALLED:
        return function
    from pulljobs.engine import spans

    return spans.traced(function, channel, consumer, is_async=is_async)
