"""Transactions that a transactional handler shares with the settlement of its job."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial

from django.db import DEFAULT_DB_ALIAS, connections, transaction
from psycopg.pq import TransactionStatus

from pulljobs.conf import settings


def databases() -> list[str]:
    """Return the alias of the jobs' database, then `default` if that is a second database."""
    using = settings().DATABASE
    is_apart = using != DEFAULT_DB_ALIAS and connections[DEFAULT_DB_ALIAS].vendor != "unknown"
    return [using, DEFAULT_DB_ALIAS] if is_apart else [using]


def atomic() -> AbstractContextManager[None]:
    """Open a transaction in the jobs' database, and in `default` if that is a second database.

    An exception rolls both back. `default` commits first: after a crash between the two commits
    the job runs again, and none of its effects is lost.
    """
    using, *others = databases()
    return _nested(using, *others) if others else transaction.atomic(using=using)


@contextmanager
def committing(on_late_error: Callable[[Exception], None]) -> Iterator[Callable[[], None]]:
    """Run the block in a transaction of the jobs' database and, if it is a second one, `default`.

    Yield a function that raises TransactionManagementError if the code so far keeps them from being
    committed. Call `on_late_error` if an `on_commit` callback fails. Such an error comes after the
    commit of its database, and undoes nothing in either of them.
    """
    with ExitStack() as stack:
        for using in databases():
            stack.enter_context(_committing_one(using, on_late_error))
        yield partial(_check, _count_blocks())


@contextmanager
def _committing_one(using: str, on_late_error: Callable[[Exception], None]) -> Iterator[None]:
    committed = list[bool]()
    try:
        with transaction.atomic(using=using):
            if not connections[using].savepoint_ids:  # Inside a test's transaction nothing commits.
                transaction.on_commit(lambda: committed.append(True), using=using)
            yield
    except Exception as error:
        if not committed:
            raise
        on_late_error(error)


def _count_blocks() -> list[int]:
    return [len(connections[alias].atomic_blocks) for alias in databases()]


def _check(blocks: list[int]) -> None:
    """Raise TransactionManagementError if the transactions can't be committed.

    `blocks` are the numbers of `atomic` blocks at their start, beyond which none may be open. The
    settlement itself finds an error that has broken the transaction in the jobs' database.
    """
    if _count_blocks() != blocks:
        raise transaction.TransactionManagementError(
            "A transaction.atomic() was not left, and would be committed in place of the "
            "transaction around it: write `with transaction.atomic():`."
        )
    for alias in databases()[1:]:
        if is_broken(alias):
            raise transaction.TransactionManagementError(
                f"An error has broken the transaction in {alias!r}, which can only be rolled back: "
                "do not catch such errors, or catch them around a transaction.atomic of their own."
            )


def is_broken(using: str) -> bool:
    """Return True if a commit of the current transaction would silently roll it back."""
    connection = connections[using]
    if connection.needs_rollback or connection.vendor != "postgresql":
        return connection.needs_rollback
    status: TransactionStatus = connection.connection.info.transaction_status
    return status == TransactionStatus.INERROR


@contextmanager
def _nested(outer: str, inner: str) -> Iterator[None]:
    with transaction.atomic(using=outer), transaction.atomic(using=inner):
        yield
