"""Detection of Spark drivers on this host that are dead, so that they never commit their publish.

A driver is named host:pid, after the process of its JVM.
"""

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


def identify_driver() -> str:
    """Return host:pid of the JVM of this Spark driver, or "" on a system without /proc.

    The JVM is the parent of the parent process of the Python process in which Spark runs a data
    source. The parent process itself, a daemon of pyspark, may end before the publish does.
    """
    parent = _process(os.getppid())
    return f"{socket.gethostname()}:{parent.parent}" if parent else ""


def find_dead(drivers: Iterable[str]) -> list[str]:
    """Return those of the Spark drivers whose process has ended. All must be of this host.

    If another process has the pid by now, the driver counts as alive.
    """
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
