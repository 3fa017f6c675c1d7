"""Statements of `pulljobs.engine.sql` on a plain connection, without Django."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

import psycopg

from pulljobs.engine.sql import Row, bound, fetch_rows, statement
from pyspark_pulljobs.connecting import connect


class Session:
    """What the claims of `pulljobs.engine.claiming` and the bounds of keys are run on here."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def run(self, name: str, params: Mapping[str, Any]) -> list[Row]:
        """The rows of a statement, bound on the server, in the transaction there is, if any."""
        with psycopg.RawCursor(self.connection) as cursor:
            cursor.execute(*bound(statement(name), params), binary=True)
            return fetch_rows(name, cursor)

    def atomic(self) -> AbstractContextManager[object]:
        """A transaction, or a savepoint within one; `psycopg.Rollback` undoes it quietly."""
        return self.connection.transaction()


@contextmanager
def opened(dsn: str) -> Iterator[Session]:
    """A session of its own; see `connecting.connect`."""
    with closing(connect(dsn)) as connection:
        yield Session(connection)
