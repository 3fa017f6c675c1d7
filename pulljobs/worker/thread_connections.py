"""Connections of one thread of a worker to databases and caches, kept between jobs."""

import logging
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Final

from django.core.cache import caches
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg.pq import TransactionStatus

from pulljobs.engine.connection_bounds import may_have_ended
from pulljobs.engine.deadlines import WorkDeadline

logger = logging.getLogger("pulljobs.worker")

AGE_CHECK: Final = 1.0
ANSWER_SECONDS: Final = 10.0
"""Time that a server has to show that a connection works."""
OPEN: Final = (TransactionStatus.ACTIVE, TransactionStatus.INTRANS, TransactionStatus.INERROR)
LEFT_OPEN: Final = (
    "Job %d left a transaction open in the database %r, and what it wrote there is rolled back: "
    "let its handler leave each transaction.atomic() and commit what it begins."
)


class _OpenedConnections:
    """Number of connections that this process has opened.

    A thread looks for new connections of its own only if this number has changed: asking Django for
    the connections of a thread costs more than a small job.
    """

    count = 0

    def note(self, **_kwargs: object) -> None:
        self.count += 1


_opened: Final = _OpenedConnections()
connection_created.connect(_opened.note)


class ThreadConnections:
    """Database connections of one thread, kept as a web server keeps them between requests."""

    def __init__(self) -> None:
        self._open: Sequence[BaseDatabaseWrapper] = ()
        self._known_count, self._aged_at = -1, time.monotonic()

    def check(self, now: float) -> None:
        """Close broken connections before a job, and from time to time those that are too old."""
        if self._find_open():
            self._check_open(now)

    def end_transactions(self, job_id: int) -> None:
        """Roll back the transactions that the handler of a job left open, and log a warning.

        The next job of the thread would otherwise write into them, or find them broken.
        """
        for connection in self._find_open():
            if _is_left_open(connection):
                logger.warning(LEFT_OPEN, job_id, connection.alias)
                connection.close()
                # Else it would count as closed inside its transaction, and never connect again.
                del connections[connection.alias]
                self._known_count = -1

    def _find_open(self) -> Sequence[BaseDatabaseWrapper]:
        if self._known_count != _opened.count:
            self._known_count = _opened.count
            self._open = connections.all(initialized_only=True)
        return self._open

    def _check_open(self, now: float) -> None:
        if now - self._aged_at > AGE_CHECK:
            close_unusable_connections()
            self._aged_at = now
        for connection in self._open:
            connection.queries_log.clear()  # With DEBUG, as at the start of a request.
            connection.errors_occurred |= _may_have_ended(connection)  # Else it is not tested.
            if connection.errors_occurred or not connection.autocommit:
                _close_if_unusable(connection)


def make_caches() -> None:
    """Make the caches of this thread, which connect when a job uses them.

    Django keeps them in context variables. Made in the copied context of a job, they would end with
    the job, and each job would connect to Redis again.
    """
    for alias in caches:
        with suppress(Exception):  # A job that uses the cache gets the error.
            caches[alias]


def close_unusable_connections() -> None:
    """Close connections of this thread that are broken or too old, as Django does for requests."""
    for connection in connections.all(initialized_only=True):
        _close_if_unusable(connection)


def _close_if_unusable(connection: BaseDatabaseWrapper) -> None:
    """Close a connection that is broken or too old. It is broken if the server does not answer."""
    is_ours = connection.vendor == "postgresql"
    with WorkDeadline(connection, ANSWER_SECONDS) if is_ours else nullcontext():
        connection.close_if_unusable_or_obsolete()


def _may_have_ended(connection: BaseDatabaseWrapper) -> bool:
    """Return True if a connection to PostgreSQL most likely ended while it was idle.

    After a restart of the server, the next job of each thread would otherwise fail and be charged.
    """
    raw = connection.connection
    return raw is not None and connection.vendor == "postgresql" and may_have_ended(raw)


def _is_left_open(connection: BaseDatabaseWrapper) -> bool:
    """Return True if a transaction is open.

    Without autocommit, or on another server than PostgreSQL, only atomic blocks count.
    """
    if connection.in_atomic_block:
        return True
    raw = connection.connection
    if (
        raw is None
        or connection.vendor != "postgresql"
        or not connection.settings_dict["AUTOCOMMIT"]
    ):
        return False
    return raw.pgconn.transaction_status in OPEN
