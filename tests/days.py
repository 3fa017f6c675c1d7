"""Removal of the partitions of days that other tests and their workers have made."""

from collections.abc import Iterator
from contextlib import contextmanager

from pulljobs.storage import partitions
from tests.factories import USING
from tests.sessions import query


@contextmanager
def no_days() -> Iterator[None]:
    """Drop all partitions except the default ones before and after the block.

    Only the owner of the tables may do that, so the test needs the marker `owner`.
    """
    drop_days()
    try:
        yield
    finally:
        drop_days()


def drop_days() -> None:
    for table in partitions.PARTITIONED:
        for partition in partitions.existing(USING, table):
            query(f"DROP TABLE {partition.name}")
