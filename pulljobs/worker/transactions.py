"""Where the writes of a handler go, and the transaction they share with the end of its job."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from django.db import DEFAULT_DB_ALIAS, connections, transaction
from psycopg.pq import TransactionStatus

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


def check() -> None:
    """Raise if the transaction in `default` is spoilt; the settle finds out that of the jobs."""
    for alias in databases()[1:]:
        if is_spoilt(alias):
            raise transaction.TransactionManagementError(
                f"An error has spoilt the transaction in {alias!r}, which can only be rolled back: "
                "let such errors out, or catch them around a transaction.atomic of their own."
            )


def is_spoilt(using: str) -> bool:
    """Whether the commit of its transaction would roll it back, without a word."""
    connection = connections[using]
    if connection.needs_rollback or connection.vendor != "postgresql":
        return connection.needs_rollback
    status: TransactionStatus = connection.connection.info.transaction_status
    return status == TransactionStatus.INERROR


@contextmanager
def _nested(outer: str, inner: str) -> Iterator[None]:
    with transaction.atomic(using=outer), transaction.atomic(using=inner):
        yield
