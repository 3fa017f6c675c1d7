"""Progress of a run of Spark: finished tasks of the active stages."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, TextIO

from pulljobs.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS: Final = 0.25


@contextmanager
def reporting(
    spark: "SparkSession", title: str, rows: int | None = None, stream: TextIO | None = None
) -> Iterator[None]:
    """Print the finished tasks of this session while the block runs, and a rate if `rows` is given.

    `rows` is the number of rows of all tasks. The estimate assumes that all tasks have the same.
    """
    watch = _Watch(spark, Progress(title, "tasks", stream=stream), rows)
    thread = threading.Thread(target=watch.run, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watch.ended.set()
        thread.join()


class _Watch:
    def __init__(self, spark: "SparkSession", progress: Progress, rows: int | None) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._progress, self._rows = progress, rows
        self.ended = threading.Event()

    def run(self) -> None:
        from py4j.protocol import Py4JError

        with suppress(Py4JError, ConnectionError):  # the JVM has died, which the verb reports
            while not self.ended.wait(LOOK_SECONDS):
                if self._progress.is_due:
                    self._progress.print_line(self._text())
        self._progress.end()

    def _text(self) -> str:
        done, tasks = self._tasks()
        return format_tasks(self._progress.title, done, tasks, self._rows, self._progress.seconds)

    def _tasks(self) -> tuple[int, int]:
        """Return the finished and all tasks of the active stages."""
        stages = [self._tracker.getStageInfo(id) for id in self._tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)


def format_tasks(title: str, done: int, tasks: int, rows: int | None, seconds: float) -> str:
    """Return a line with the finished tasks, the rate and the remaining time."""
    if not tasks:
        return f"{title}: {seconds:.0f} s"
    parts = [f"{title}: {done} of {tasks} tasks"]
    if rows and done:
        parts.append(f"{rows * done / tasks / max(seconds, 0.001):,.0f} rows/s")
    if done:
        parts.append(f"{seconds * (tasks - done) / done:.0f} s to go")
    return ", ".join(parts)
