"""Where the writes of a handler go, and the transaction they share with the end of its job."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from django.db import DEFAULT_DB_ALIAS, connections, transaction

from pulljobs.conf import settings


def databases() -> list[str]:
    """That of the jobs, and `default` where that is another."""
    using = settings().DATABASE
    is_apart = using != DEFAULT_DB_ALIAS and connections[DEFAULT_DB_ALIAS].vendor != "unknown"
    return [using, DEFAULT_DB_ALIAS] if is_apart else [using]


def together() -> AbstractContextManager[None]:
    """All of it, or nothing.

    Of two databases `default` is committed first: a crash between the two commits has the job done
    again, and loses none of its effects.
    """
    using, *beside = databases()
    return _nested(using, *beside) if beside else transaction.atomic(using=using)


@contextmanager
def _nested(outer: str, inner: str) -> Iterator[None]:
    with transaction.atomic(using=outer), transaction.atomic(using=inner):
        yield
