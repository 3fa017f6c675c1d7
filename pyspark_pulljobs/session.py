"""Sessions that run statements of `pulljobs.engine.sql` without Django."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

import psycopg

from pulljobs.engine.sql import Row, bound, fetch_rows, statement
from pyspark_pulljobs.connecting import connect


class Session:
    """Database session; the claims and the key bounds of `pulljobs.engine` run on it."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def run(self, name: str, params: Mapping[str, Any]) -> list[Row]:
        """Run a statement in the current transaction, if any; the server binds the parameters."""
        with psycopg.RawCursor(self.connection) as cursor:
            cursor.execute(*bound(statement(name), params), binary=True)
            return fetch_rows(name, cursor)

    def atomic(self) -> AbstractContextManager[object]:
        """Begin a transaction or savepoint; `psycopg.Rollback` raised in it undoes it silently."""
        return self.connection.transaction()


@contextmanager
def opened(dsn: str) -> Iterator[Session]:
    """Open a session, and close it at the end; see `connecting.connect`."""
    with closing(connect(dsn)) as connection:
        yield Session(connection)
