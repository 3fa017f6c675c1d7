"""Partitions, which no test empties: other tests, and workers that they ran, made days as well."""

from collections.abc import Iterator
from contextlib import contextmanager

from pulljobs.storage import partitions
from tests.factories import USING
from tests.sessions import query


@contextmanager
def no_days() -> Iterator[None]:
    """Only the default partitions, before and after; for tests with the mark `owner`."""
    drop_days()
    try:
        yield
    finally:
        drop_days()


def drop_days() -> None:
    for table in partitions.PARTITIONED:
        for partition in partitions.existing(USING, table):
            query(f"DROP TABLE {partition.name}")
