"""Progress of long work, printed to the error stream.

A terminal shows one line that is rewritten in place. Other streams, such as a log file, get a new
line every `LINE_SECONDS`.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO, TypeVar

T = TypeVar("T")

MOVE_SECONDS: Final = 0.1
"""Shortest time between two updates of the line on a terminal."""
LINE_SECONDS: Final = 10.0
"""Shortest time between two lines on other streams."""
ERASE: Final = "\r\033[K"
"""Escape sequence that moves the cursor to the start of the line and clears the line."""


def is_smart(stream: TextIO) -> bool:
    """Return True if the stream is a terminal that can rewrite a line, and NO_COLOR is not set."""
    term = os.environ.get("TERM", "")
    return stream.isatty() and term not in ("", "dumb") and not os.environ.get("NO_COLOR")


class Progress:
    """Count of the finished units of one piece of work, for use in one thread.

    `unit` is a plural noun such as `jobs`. Without a total, no remaining time is printed.
    """

    def __init__(
        self, title: str, unit: str, total: int | None = None, stream: TextIO | None = None
    ) -> None:
        self.title, self.unit, self.total, self.done = title, unit, total, 0
        self._stream = stream or sys.stderr
        self._moves = is_smart(self._stream)
        self._started = self._written = time.monotonic()

    def advance(self, count: int) -> None:
        """Add finished units, and print the progress if a line is due."""
        self.done += count
        if self.is_due:
            self.print_line(self.text)

    @property
    def is_due(self) -> bool:
        """True if the last line was printed long enough ago to print the next."""
        return time.monotonic() - self._written >= (MOVE_SECONDS if self._moves else LINE_SECONDS)

    def print_line(self, text: str) -> None:
        """Print a line. On a terminal it replaces the line before it."""
        self._written = time.monotonic()
        self._stream.write(f"{ERASE}{text}" if self._moves else f"{text}\n")
        self._stream.flush()

    def end(self) -> None:
        """Erase the line on a terminal. The caller prints the result."""
        if self._moves:
            self._stream.write(ERASE)
            self._stream.flush()

    @property
    def seconds(self) -> float:
        """Seconds since the work began."""
        return time.monotonic() - self._started

    @property
    def text(self) -> str:
        """Line with the current progress."""
        return format_line(self.title, self.done, self.total, self.unit, self.seconds)


@contextmanager
def show_progress(
    title: str, unit: str, total: int | None = None, stream: TextIO | None = None
) -> Iterator[Progress]:
    """Yield the progress of the work in this block, and end it when the block ends."""
    progress = Progress(title, unit, total, stream)
    try:
        yield progress
    finally:
        progress.end()


def count_items(items: Iterable[T], progress: Progress) -> Iterator[T]:
    """Yield the items, and count each as finished when the next is requested."""
    for item in items:
        yield item
        progress.advance(1)


def format_line(title: str, done: int, total: int | None, unit: str, seconds: float) -> str:
    """Return a line with the finished units, their rate and, with a total, the remaining time."""
    share = "" if total is None else f" of {total:,}"
    parts = [f"{title}: {done:,}{share} {unit}"]
    if done:
        parts.append(f"{done / max(seconds, 0.001):,.0f} {unit}/s")
    if done and total is not None:
        parts.append(f"{seconds * max(0, total - done) / done:.0f} s to go")
    return ", ".join(parts)
