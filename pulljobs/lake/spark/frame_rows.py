"""Rows of a frame, one partition at a time."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pulljobs.lake.spark import remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


def each(frame: "DataFrame") -> "Iterator[Row]":
    """Yield the rows like `toLocalIterator` of the frame, but from its RDD if it has one.

    The frame's own method starts its jobs after Spark has closed their query. Spark keeps these
    jobs and their broadcasts as long as the session lives (DAGScheduler.activeQueryToJobs).
    """
    is_remote = remote.is_remote(frame.sparkSession)
    yield from frame.toLocalIterator() if is_remote else frame.rdd.toLocalIterator()
