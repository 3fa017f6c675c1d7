"""Rows of a frame, one partition at a time."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


def each(frame: "DataFrame") -> "Iterator[Row]":
    """Yield the rows like `toLocalIterator` of the frame, but from its RDD.

    The frame's own method starts its jobs after Spark has closed their query. Spark keeps these
    jobs and their broadcasts as long as the session lives (DAGScheduler.activeQueryToJobs).
    """
    yield from frame.rdd.toLocalIterator()
