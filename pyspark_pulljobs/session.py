"""Sessions that run statements of `pulljobs.engine.sql` without Django."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from pulljobs.engine.sql import Row, bound, fetch_rows, statement
from pyspark_pulljobs.connecting import connect

PLANS: Final = (
    b"SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off"
)
"""Settings that workers use too: statistics of a table that just filled must not change plans."""


class Session:
    """Database session, on which claims and key bounds of `pulljobs.engine` run."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def run(self, name: str, params: Mapping[str, Any]) -> list[Row]:
        """Run a statement in the current transaction, if any, and return its rows.

        The server binds the parameters.
        """
        with psycopg.RawCursor(self.connection) as cursor:
            cursor.execute(*bound(statement(name), params), binary=True)
            return fetch_rows(name, cursor)

    def atomic(self) -> AbstractContextManager[object]:
        """Begin a transaction or savepoint. Raise `psycopg.Rollback` in it to undo it silently."""
        return self.connection.transaction()


class PlannedSession(Session):
    """Session that sets `PLANS` in each transaction, because a pooler may switch connections."""

    @contextmanager
    def atomic(self) -> Iterator[None]:
        is_outermost = self.connection.info.transaction_status is TransactionStatus.IDLE
        with self.connection.transaction():
            if is_outermost:
                self.connection.execute(PLANS)
            yield


@contextmanager
def open_session(dsn: str) -> Iterator[Session]:
    """Open a session by `connecting.connect`, and close it at the end."""
    with closing(connect(dsn)) as connection:
        yield Session(connection)
