"""Database sessions that run statements of `pulljobs.engine.sql` without Django.

Every wait for the server has a time limit: a proxy may acknowledge all bytes and forget them.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, Final, TypeVar

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from pulljobs.engine.deadlines import Deadline
from pulljobs.engine.sql import Row, bound, fetch_rows, statement
from pyspark_pulljobs.connecting import connect

PLANS: Final = (
    b"SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off"
)
"""Settings that workers use too: statistics of a table that just filled must not change plans."""


STATEMENT_SECONDS: Final = 300.0
"""Longest time of a statement, which may store many messages or wait for locks."""
BRIEF_SECONDS: Final = 15.0
"""Longest time of the statements of heartbeats and reapers, which wait for no long lock."""

T = TypeVar("T")
Text = str | bytes | sql.SQL | sql.Composed


class Session:
    """Database session in which code of `pulljobs.engine`, such as a claim, runs its statements."""

    def __init__(
        self, connection: psycopg.Connection[Any], seconds: float = STATEMENT_SECONDS
    ) -> None:
        """Use this connection. After `seconds`, a statement raises psycopg.OperationalError."""
        self.connection, self._seconds = connection, seconds

    def run(self, name: str, params: Mapping[str, Any]) -> list[Row]:
        """Run the statement file of this name, in the current transaction if any. Return its rows.

        The server binds the parameters.
        """
        with psycopg.RawCursor(self.connection) as cursor, self.bounded():
            cursor.execute(*bound(statement(name), params), binary=True)
            return fetch_rows(name, cursor)

    def execute(self, text: Text, params: Any = None, **options: Any) -> psycopg.Cursor[Any]:
        """Execute SQL that is not in a statement file, and return the cursor with its rows."""
        with self.bounded():
            return self.connection.execute(text, params, **options)

    def atomic(self) -> AbstractContextManager[object]:
        """Return a context manager of a transaction, or of a savepoint within one.

        Raise `psycopg.Rollback` in the block to undo it silently.
        """
        return self.enclosing(self.connection.transaction())

    def bounded(self) -> Deadline:
        """Return a context manager that limits the time of all statements in its block together."""
        return Deadline(self.connection, self._seconds)

    @contextmanager
    def enclosing(self, manager: AbstractContextManager[T]) -> Iterator[T]:
        """Enter and exit another context manager, both under the time limit of statements.

        The block itself has no time limit.
        """
        with self.bounded():
            value = manager.__enter__()
        try:
            yield value
        except BaseException:
            with self.bounded():
                if not manager.__exit__(*sys.exc_info()):
                    raise
        else:
            with self.bounded():
                manager.__exit__(None, None, None)


class PlannedSession(Session):
    """Session whose transactions avoid sequential scans, bitmap scans and JIT, as in workers.

    Each transaction sets this itself: a pooler may run the next transaction elsewhere.
    """

    @contextmanager
    def atomic(self) -> Iterator[None]:
        is_outermost = self.connection.info.transaction_status is TransactionStatus.IDLE
        with super().atomic():
            if is_outermost:
                self.execute(PLANS)
            yield


@contextmanager
def open_session(dsn: str, seconds: float = STATEMENT_SECONDS) -> Iterator[Session]:
    """Provide a session on a new connection, which is closed at the end of the block."""
    with closing(connect(dsn)) as connection:
        yield Session(connection, seconds)
