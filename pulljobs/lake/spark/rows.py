"""Rows of a frame, one partition at a time."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


def each(frame: "DataFrame") -> "Iterator[Row]":
    """What `toLocalIterator` of the frame gives, but from its RDD.

    The frame's own starts its jobs when Spark has closed the query they belong to: they, and what
    they broadcast, are kept for as long as the session lives (DAGScheduler.activeQueryToJobs).
    """
    yield from frame.rdd.toLocalIterator()
