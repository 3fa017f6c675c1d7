"""Registry of handlers for one test."""

from collections.abc import Iterator
from contextlib import contextmanager

from pulljobs import handlers


@contextmanager
def registry_of_its_own() -> Iterator[None]:
    """Register no handler at first. Restore the previous ones at the end."""
    handlers.autodiscover()
    before = dict(handlers._registered)
    handlers._registered.clear()
    try:
        yield
    finally:
        handlers._registered.clear()
        handlers._registered.update(before)
