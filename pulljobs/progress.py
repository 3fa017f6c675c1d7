"""Progress of long work on the error stream: a moving line on a terminal, else a line at times."""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO, TypeVar

T = TypeVar("T")

MOVE_SECONDS: Final = 0.1
LINE_SECONDS: Final = 10.0
ERASE: Final = "\r\033[K"


def is_smart(stream: TextIO) -> bool:
    """Return True for a terminal that can rewrite a line."""
    term = os.environ.get("TERM", "")
    return stream.isatty() and term not in ("", "dumb") and not os.environ.get("NO_COLOR")


class Progress:
    """Progress of work on `unit`s. Without a total it shows no end. It belongs to one thread."""

    def __init__(
        self, title: str, unit: str, total: int | None = None, stream: TextIO | None = None
    ) -> None:
        self.title, self.unit, self.total, self.done = title, unit, total, 0
        self._stream = stream or sys.stderr
        self._moves = is_smart(self._stream)
        self._started = self._written = time.monotonic()

    def advance(self, count: int) -> None:
        self.done += count
        self.look()

    def look(self) -> None:
        """Print the progress if a line is due."""
        if self.is_due:
            self.say(self.text)

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._written >= (MOVE_SECONDS if self._moves else LINE_SECONDS)

    def say(self, text: str) -> None:
        self._written = time.monotonic()
        self._stream.write(f"{ERASE}{text}" if self._moves else f"{text}\n")
        self._stream.flush()

    def end(self) -> None:
        """Erase the moving line; the caller prints the result."""
        if self._moves:
            self._stream.write(ERASE)
            self._stream.flush()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    @property
    def text(self) -> str:
        return text_of(self.title, self.done, self.total, self.unit, self.seconds)


@contextmanager
def shown(
    title: str, unit: str, total: int | None = None, stream: TextIO | None = None
) -> Iterator[Progress]:
    progress = Progress(title, unit, total, stream)
    try:
        yield progress
    finally:
        progress.end()


def counted(items: Iterable[T], progress: Progress) -> Iterator[T]:
    """Yield the items, each of them a step."""
    for item in items:
        yield item
        progress.advance(1)


def text_of(title: str, done: int, total: int | None, unit: str, seconds: float) -> str:
    """Return a line with the work done, the rate and the remaining time."""
    share = "" if total is None else f" of {total:,}"
    parts = [f"{title}: {done:,}{share} {unit}"]
    if done:
        parts.append(f"{done / max(seconds, 0.001):,.0f} {unit}/s")
    if done and total is not None:
        parts.append(f"{seconds * max(0, total - done) / done:.0f} s to go")
    return ", ".join(parts)
