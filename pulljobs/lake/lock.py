"""Lock that makes one process at a time the writer of the lake."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from django.db import connections

from pulljobs.engine.connection_bounds import with_bounds
from pulljobs.engine.deadlines import Deadline
from pulljobs.errors import LakeError
from pulljobs.storage import partitions

LOCK: Final = 0x6C616B65  # "lake"
"""Key of the advisory lock in PostgreSQL, the same for all locations."""

ANSWER_SECONDS: Final = 15.0
"""Longest time of a statement. Then the connection counts as broken."""


class Owner:
    """Holder of the lock, which lasts as long as its database session."""

    def __init__(self, session: "psycopg.Connection[Any]") -> None:
        self._session = session

    def check(self) -> None:
        """Raise LakeError if the session broke, because another process may have the lock now."""
        try:
            with Deadline(self._session, ANSWER_SECONDS):
                self._session.execute("SELECT 1")
        except psycopg.Error as error:
            raise LakeError(
                "The connection that holds the lock of the lake broke: run the command again."
            ) from error


def check_owner(using: str) -> None:
    """Raise LakeError if the database role does not own the partitioned tables.

    Only their owner can drop, attach and change partitions.
    """
    if tables := partitions.not_owned(using):
        raise LakeError(f"This role does not own {' and '.join(tables)}: run it as their owner.")


@contextmanager
def hold_lock(using: str) -> Iterator[Owner]:
    """Hold the lock within the block, or raise LakeError if another process has it.

    LakeError is also raised if the database fails. The lock belongs to a transaction, so that it
    works behind a pooler. The transaction writes nothing and has no snapshot between its
    statements, so it holds back neither vacuum nor exports.
    """
    parameters = connections[using].get_connection_params()
    parameters = {name: parameters[name] for name in parameters if name not in DJANGO_PARAMETERS}
    try:
        with psycopg.connect(**with_bounds(parameters), prepare_threshold=None) as session:
            with Deadline(session, ANSWER_SECONDS):
                session.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                row = session.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK]).fetchone()
            if row is None or not row[0]:
                raise LakeError("Another process writes to the lake: try again when it is done.")
            yield Owner(session)
            session.rollback()
    except psycopg.Error as error:
        line = str(error).strip().partition("\n")[0]
        raise LakeError(f"The database fails: {line}") from error


DJANGO_PARAMETERS: Final = frozenset({"context", "cursor_factory", "prepare_threshold"})
"""Parameters that Django adds for psycopg, which a plain connection does not take."""
