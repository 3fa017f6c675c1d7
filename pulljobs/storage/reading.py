"""Reading the parts of a page, none of which may keep the others from being shown."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import psycopg
from django.db import OperationalError, connections, transaction

T = TypeVar("T")


class Reading:
    """What was read in time, part by part; `missed` has the others."""

    def __init__(self, using: str) -> None:
        self._using = using
        self.missed: list[str] = []

    def part(self, part: str, read: Callable[[], T], otherwise: T) -> T:
        try:
            with transaction.atomic(using=self._using):
                return read()
        except OperationalError as error:
            if not isinstance(error.__cause__, psycopg.errors.QueryCanceled):
                raise
            self.missed.append(part)
            return otherwise


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
