"""Detection of dead Spark drivers on this host, whose publishes will never be committed."""

import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

ENDED: Final = ("Z", "X")
"""States of ended processes in /proc: zombie (Z) and dead (X)."""


class _Process(NamedTuple):
    state: str
    parent: int


def ours() -> str:
    """Return host:pid of the parent of our parent process, which is Spark's JVM on a driver.

    The parent, a daemon of pyspark, may end before the publish does. The result is empty if the
    system has no /proc.
    """
    parent = _process(os.getppid())
    return f"{socket.gethostname()}:{parent.parent}" if parent else ""


def gone(drivers: Iterable[str]) -> list[str]:
    """Return those of these drivers of this host that are dead; a reused pid counts as alive."""
    return [driver for driver in drivers if not _is_alive(int(driver.rpartition(":")[2]))]


def _is_alive(pid: int) -> bool:
    process = _process(pid)
    return process is not None and process.state not in ENDED


def _process(pid: int) -> _Process | None:
    try:
        status = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return None
    # The name of the process is in parentheses, and may have parentheses and spaces itself.
    state, parent, *_others = status.rpartition(")")[2].split()
    return _Process(state, int(parent))
