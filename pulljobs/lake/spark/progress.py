"""Lines of progress while Spark works: finished tasks of the active stages."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TextIO

from pulljobs.lake.spark import remote
from pulljobs.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS: Final = 0.25


@contextmanager
def reporting(
    spark: "SparkSession", title: str, rows: int | None = None, stream: TextIO | None = None
) -> Iterator[None]:
    """Print the finished tasks of the session while the block runs, and rows per second.

    Lines go to `stream`, by default stderr, even if it is no terminal. The rate is printed only if
    `rows`, the number of rows of all tasks, is given. It assumes that all tasks have equally many.
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
        is_remote = remote.is_remote(spark)
        self._tasks = RemoteTasks(spark) if is_remote else LocalTasks(spark)
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
        done, tasks = self._tasks.count()
        return format_tasks(self._progress.title, done, tasks, self._rows, self._progress.seconds)


class LocalTasks:
    """Counter of the tasks of a Spark session whose driver is this process."""

    def __init__(self, spark: "SparkSession") -> None:
        self._tracker = spark.sparkContext.statusTracker()

    def count(self) -> tuple[int, int]:
        """Return the numbers of finished and of all tasks of the active stages."""
        stages = [self._tracker.getStageInfo(id) for id in self._tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)


class RemoteTasks:
    """Counter of the tasks of a Spark Connect session, whose server reports them during a query."""

    def __init__(self, spark: "SparkSession") -> None:
        self._latest = 0, 0
        handler: Any = self._take  # its declared type needs gRPC
        spark.registerProgressHandler(handler)

    def count(self) -> tuple[int, int]:
        """Return the numbers of finished and of all tasks that the server reported last."""
        return self._latest

    def _take(self, stages: Any, *_facts: object, **_more: object) -> None:
        known = list(stages or ())
        self._latest = (
            sum(stage.num_completed_tasks for stage in known),
            sum(stage.num_tasks for stage in known),
        )


def format_tasks(title: str, done: int, tasks: int, rows: int | None, seconds: float) -> str:
    """Return a line with the finished tasks, the rows per second and the estimated seconds to go.

    The rate is left out without `rows`, and both until a task is finished. Without tasks the line
    has only the `seconds` that have passed.
    """
    if not tasks:
        return f"{title}: {seconds:.0f} s"
    parts = [f"{title}: {done} of {tasks} tasks"]
    if rows and done:
        parts.append(f"{rows * done / tasks / max(seconds, 0.001):,.0f} rows/s")
    if done:
        parts.append(f"{seconds * (tasks - done) / done:.0f} s to go")
    return ", ".join(parts)
