"""Wall clock that a director can move.

An administrator or NTP can move `time.time()` and `datetime.now()`, so these are moved. The
monotonic clock of a running process cannot jump, and the fault `stop` freezes processes.
"""

import mmap
import struct
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Final

OFFSET: Final = struct.Struct("d")
_genuine = time.time


def make(file: Path) -> None:
    """Create the file of a clock without an offset."""
    file.write_bytes(OFFSET.pack(0))


def move(file: Path, seconds: float) -> None:
    """Set the offset in seconds of the clock of all processes that follow this file."""
    with file.open("r+b") as opened:
        opened.write(OFFSET.pack(seconds))


def follow(file: str) -> None:
    """Make this process follow the clock of a file. An empty name changes nothing."""
    if not file:
        return
    with open(file, "r+b") as opened:
        shared = mmap.mmap(opened.fileno(), OFFSET.size)

    def offset() -> float:
        return float(OFFSET.unpack(shared)[0])

    _replace(time, "time", lambda: _genuine() + offset())
    _replace(time, "time_ns", lambda: int((_genuine() + offset()) * 1e9))
    moved = _moved(offset)
    for name, module in list(sys.modules.items()):
        if name.startswith(("pulljobs.", "django.")) and getattr(module, "datetime", 0) is datetime:
            _replace(module, "datetime", moved)


def _replace(module: Any, name: str, value: Any) -> None:
    setattr(module, name, value)


def _moved(offset: Callable[[], float]) -> type[datetime]:
    class Genuine(type):
        """Metaclass that makes `isinstance` accept every datetime as an instance."""

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, datetime)

    class Moved(datetime, metaclass=Genuine):
        """Datetime class whose `now` returns the time of the moved clock, as a plain datetime."""

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]  # not a Moved
            return datetime.now(tz) + timedelta(seconds=offset())

    return Moved
