"""How far a run is, on the error stream: a line that moves on a terminal, else one now and then."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS: Final = 0.25
LINE_SECONDS: Final = 10.0


@contextmanager
def shown(
    spark: "SparkSession", title: str, rows: int | None = None, stream: TextIO | None = None
) -> Iterator[None]:
    """Tasks done of those that this session runs meanwhile; a rate where the rows are known.

    `rows` are those of all tasks together: the end is reckoned as if each had the same.
    """
    watch = _Watch(spark, title, rows, stream or sys.stderr)
    thread = threading.Thread(target=watch.run, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watch.ended.set()
        thread.join()


class _Watch:
    def __init__(self, spark: "SparkSession", title: str, rows: int | None, stream: TextIO) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._title, self._rows, self._stream = title, rows, stream
        self._moves = stream.isatty()
        self._started = self._written = time.monotonic()
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(LOOK_SECONDS):
            now = time.monotonic()
            if self._moves or now - self._written >= LINE_SECONDS:
                self._written = now
                self._write(*self._tasks())
        if self._moves:
            self._stream.write("\r\033[K")
            self._stream.flush()

    def _tasks(self) -> tuple[int, int]:
        """Done and in all, of the stages that are under way."""
        stages = [self._tracker.getStageInfo(id) for id in self._tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)

    def _write(self, done: int, tasks: int) -> None:
        line = text_of(self._title, done, tasks, self._rows, time.monotonic() - self._started)
        self._stream.write(f"\r\033[K{line}" if self._moves else f"{line}\n")
        self._stream.flush()


def text_of(title: str, done: int, tasks: int, rows: int | None, seconds: float) -> str:
    """One line: how much is done, how fast, and how long it may take yet."""
    if not tasks:
        return f"{title}: {seconds:.0f} s"
    parts = [f"{title}: {done} of {tasks} tasks"]
    if rows and done:
        parts.append(f"{rows * done / tasks / max(seconds, 0.001):,.0f} rows/s")
    if done:
        parts.append(f"{seconds * (tasks - done) / done:.0f} s to go")
    return ", ".join(parts)
