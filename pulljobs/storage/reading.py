"""Reading the parts of a page, none of which may keep the others from being shown."""

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
"""Of one table: a migration or a grant lacks, as while a new release begins."""


class Reading:
    """What was read in time, part by part; `missed` has the others."""

    def __init__(self, using: str) -> None:
        self._using = using
        self.missed: list[str] = []
        self.refused: dict[str, str] = {}
        """Why, of those that were not only late."""

    @property
    def error(self) -> str:
        """Why the first of them was refused; empty: no part was."""
        return next(iter(self.refused.values()), "")

    def part(self, part: str, read: Callable[[], T], otherwise: T) -> T:
        try:
            with transaction.atomic(using=self._using):
                return read()
        except (OperationalError, ProgrammingError) as error:
            if isinstance(error.__cause__, REFUSED):
                self.refused[part] = told(error)
            elif not isinstance(error.__cause__, LATE):
                raise
            self.missed.append(part)
            return otherwise


def told(error: Exception) -> str:
    """In a line: what to do about it, or what it says."""
    return schema.advice(error) or str(error).partition("\n")[0]


@contextmanager
def impatient(using: str, patience: timedelta) -> Iterator[Reading]:
    """In one transaction, each of whose statements ends in time."""
    milliseconds = str(round(patience.total_seconds() * 1000))
    with transaction.atomic(using=using):
        with connections[using].cursor() as cursor:
            # To compile a plan takes longer than to run it.
            cursor.execute(
                "SELECT set_config('statement_timeout', %s, true), set_config('jit', 'off', true)",
                [milliseconds],
            )
        yield Reading(using)
