"""Transactions that are short, the work after their commits, and their repetition."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import psycopg
from django.db import Error, OperationalError, connections, transaction

from pulljobs.storage import sessions
from pulljobs.storage.sessions import LOCK_SECONDS, LONGEST_SECONDS, in_transaction, raw_connection

logger = logging.getLogger("pulljobs.storage")

T = TypeVar("T")

ATTEMPTS: Final = 5
CONFLICTS: Final = psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure


@contextmanager
def brief(using: str, *, lock_seconds: float = LONGEST_SECONDS) -> Iterator[None]:
    """Open a transaction that the server ends if its client sends nothing for ten seconds.

    Otherwise a process that is suspended in the transaction, or whose host crashes, would keep its
    locks until TCP notices, which takes hours. Statements wait at most `lock_seconds` for a lock,
    or LOCK_SECONDS in a loop. Inside the caller's transaction this is a savepoint without limits.
    """
    connection = connections[using]
    if not connection.in_atomic_block:
        sessions.open_session(connection)
    is_callers = sessions.is_in_transaction(connection)
    with transaction.atomic(using=using):
        raw = raw_connection(using)
        if not is_callers and raw not in sessions.dedicated:
            seconds = LOCK_SECONDS if sessions.is_loop(using) else lock_seconds
            with connection.wrap_database_errors:
                raw.execute(sessions.format_limits(is_local=True, lock_seconds=seconds))
        yield


def call_on_commit(using: str, work: Callable[[], object]) -> None:
    """Call `work` after the commit of the caller's transaction, or at once if there is none.

    Its exceptions are logged. If the caller commits by hand, Django reports no commit, and `work`
    is not called: so it may only be work that a loop of a worker does later in any case.
    """
    connection = connections[using]
    if connection.in_atomic_block or connection.get_autocommit():
        # Robust: it comes after the commit, and must not look as if that had failed.
        transaction.on_commit(work, using=using, robust=True)


@contextmanager
def after_commit(using: str, what: str) -> Iterator[None]:
    """Log a database error of the block, because the commit before it has succeeded.

    `what` names the block's task in the log. Inside the caller's transaction nothing is committed
    yet, and the error is raised.
    """
    try:
        yield
    except Error as error:
        if in_transaction(using):
            raise
        logger.warning("After a commit, %s failed: %s", what, str(error).partition("\n")[0])


def retrying(using: str, work: Callable[[], T]) -> T:
    """Call `work`, again after deadlocks and serialization errors up to five times in all.

    Return its result. Inside the caller's transaction it is called once, because only the whole
    transaction could be repeated.
    """
    for attempt in range(1, ATTEMPTS):
        try:
            return work()
        except OperationalError as error:
            if in_transaction(using) or not isinstance(error.__cause__, CONFLICTS):
                raise
            logger.info("Attempt %d lost a conflict over locks; trying again.", attempt)
    return work()


def is_wait(error: Exception) -> bool:
    """Return True if a time limit caused the error: of a wait for a lock, or of a statement."""
    causes = psycopg.errors.LockNotAvailable | psycopg.errors.QueryCanceled
    return isinstance(error.__cause__, causes)
