"""Removal of partitions, which other tests and their workers make and no test empties."""

from collections.abc import Iterator
from contextlib import contextmanager

from pulljobs.storage import partitions
from tests.factories import USING
from tests.sessions import query


@contextmanager
def no_days() -> Iterator[None]:
    """Leave only the default partitions before and after, for tests with the mark `owner`."""
    drop_days()
    try:
        yield
    finally:
        drop_days()


def drop_days() -> None:
    for table in partitions.PARTITIONED:
        for partition in partitions.existing(USING, table):
            query(f"DROP TABLE {partition.name}")
