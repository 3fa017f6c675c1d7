"""Registry of handlers for one test."""

from collections.abc import Iterator
from contextlib import contextmanager

from pulljobs import handlers, limit_groups


@contextmanager
def registry_of_its_own() -> Iterator[None]:
    """Empty the registries of handlers and limit groups, and restore them after the block."""
    handlers.autodiscover()
    before, groups = dict(handlers._registered), dict(limit_groups._declared)
    handlers._registered.clear()
    limit_groups._declared.clear()
    try:
        yield
    finally:
        handlers._registered.clear()
        handlers._registered.update(before)
        limit_groups._declared.clear()
        limit_groups._declared.update(groups)
