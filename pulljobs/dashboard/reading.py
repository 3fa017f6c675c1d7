"""Reading the parts of the page, none of which may keep the others from being shown."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final, TypeVar

import psycopg
from django.db import OperationalError, connections, transaction
from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _

T = TypeVar("T")

PATIENCE: Final = timedelta(seconds=2)
"""For one statement: the page is for when the database is slow, too."""


class Part(TextChoices):
    """Of the page, as templates and people know it."""

    WORKERS = "workers", _("workers")
    CONSUMERS = "consumers", _("consumers")
    DEAD = "dead", _("dead jobs")
    TABLES = "tables", _("tables")
    SNAPSHOTS = "snapshots", _("snapshots")
    PARTITIONS = "partitions", _("partitions")
    THROUGHPUT = "throughput", _("throughput")
    HISTORY = "history", _("history")


class Reading:
    """What was read in time, part by part; `missed` has the others."""

    def __init__(self, using: str) -> None:
        self._using = using
        self.missed: list[Part] = []

    def part(self, part: Part, read: Callable[[], T], otherwise: T) -> T:
        try:
            with transaction.atomic(using=self._using):
                return read()
        except OperationalError as error:
            if not isinstance(error.__cause__, psycopg.errors.QueryCanceled):
                raise
            self.missed.append(part)
            return otherwise


@contextmanager
def impatient(using: str) -> Iterator[Reading]:
    """In one transaction, whose statements end in time."""
    milliseconds = str(round(PATIENCE.total_seconds() * 1000))
    with transaction.atomic(using=using):
        with connections[using].cursor() as cursor:
            # To compile a plan takes longer than to run it.
            cursor.execute(
                "SELECT set_config('statement_timeout', %s, true), set_config('jit', 'off', true)",
                [milliseconds],
            )
        yield Reading(using)
