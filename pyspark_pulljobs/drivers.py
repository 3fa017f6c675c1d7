"""Which drivers of this host are gone: what those began nobody will end."""

import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

ENDED: Final = ("Z", "X")
"""States of processes that only wait to be forgotten."""


class _Process(NamedTuple):
    state: str
    parent: int


def ours() -> str:
    """host:pid of the process our parent was started by, which on a driver is Spark's JVM.

    (The parent itself, a daemon of pyspark, may end before the publish does.) Empty where the
    system does not tell.
    """
    parent = _process(os.getppid())
    return f"{socket.gethostname()}:{parent.parent}" if parent else ""


def gone(drivers: Iterable[str]) -> list[str]:
    """Of drivers of this host; a number that another process bears by now counts as alive."""
    return [driver for driver in drivers if not _is_alive(int(driver.rpartition(":")[2]))]


def _is_alive(pid: int) -> bool:
    process = _process(pid)
    return process is not None and process.state not in ENDED


def _process(pid: int) -> _Process | None:
    try:
        told = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return None
    state, parent, *_others = told.rpartition(")")[2].split()  # before it the name, whatever it is
    return _Process(state, int(parent))
