"""Handlers of one test, forgotten after it."""

from collections.abc import Iterator
from contextlib import contextmanager

from pulljobs import handlers


@contextmanager
def registry_of_its_own() -> Iterator[None]:
    """No handler is registered at first; in the end those of before are again."""
    handlers.autodiscover()
    before = dict(handlers._registered)
    handlers._registered.clear()
    try:
        yield
    finally:
        handlers._registered.clear()
        handlers._registered.update(before)
