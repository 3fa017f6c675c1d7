"""Reading of a page's parts by separate queries: one that fails does not hide the others."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final, TypeVar

from django.db import OperationalError, ProgrammingError, connections, transaction
from psycopg import errors

from pulljobs.storage import schema

T = TypeVar("T")

LATE: Final = (errors.QueryCanceled, errors.LockNotAvailable)
REFUSED: Final = (errors.UndefinedTable, errors.UndefinedColumn, errors.InsufficientPrivilege)
"""Errors of one table: a migration or a grant is missing, as during an upgrade."""


class Reading:
    """Reader of the parts of a page by separate queries. `missed` has the names of failed parts."""

    def __init__(self, using: str) -> None:
        self._using = using
        self.missed: list[str] = []
        self.refused: dict[str, str] = {}
        """Reasons, by name, of the parts that failed for another reason than time."""

    @property
    def error(self) -> str:
        """Advice about the first part that failed, except by a time limit, or an empty text."""
        return next(iter(self.refused.values()), "")

    def part(self, part: str, read: Callable[[], T], otherwise: T) -> T:
        try:
            with transaction.atomic(using=self._using):
                return read()
        except (OperationalError, ProgrammingError) as error:
            if isinstance(error.__cause__, REFUSED):
                self.refused[part] = describe(error)
            elif not isinstance(error.__cause__, LATE):
                raise
            self.missed.append(part)
            return otherwise


def describe(error: Exception) -> str:
    """Return what to do, as for a missing migration, or the first line of any other error."""
    return schema.advice(error) or str(error).partition("\n")[0]


@contextmanager
def impatient(using: str, patience: timedelta) -> Iterator[Reading]:
    """Open a transaction in which each statement may take `patience`. Yield a `Reading`."""
    milliseconds = str(round(patience.total_seconds() * 1000))
    with transaction.atomic(using=using):
        with connections[using].cursor() as cursor:
            # To compile a plan takes longer than to run it.
            cursor.execute(
                "SELECT set_config('statement_timeout', %s, true), set_config('jit', 'off', true)",
                [milliseconds],
            )
        yield Reading(using)
