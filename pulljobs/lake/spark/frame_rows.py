"""Iteration over the rows of a DataFrame without a leak of memory in Spark's driver."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pulljobs.lake.spark import remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


def each(frame: "DataFrame") -> "Iterator[Row]":
    """Yield a DataFrame's rows, one partition at a time, as `frame.toLocalIterator()` does.

    The frame's own method starts its jobs after Spark has closed their query. Then Spark keeps
    these jobs and their broadcasts as long as the session lives (DAGScheduler.activeQueryToJobs).
    So the rows are read from the RDD, where the session has one.
    """
    is_remote = remote.is_remote(frame.sparkSession)
    yield from frame.toLocalIterator() if is_remote else frame.rdd.toLocalIterator()
