"""Which drivers of this host are gone: what those began nobody will end."""

import os
import socket
from collections.abc import Iterable
from pathlib import Path


def ours() -> str:
    """host:pid of the process our parent was started by, which on a driver is Spark's JVM.

    (The parent itself, a daemon of pyspark, may end before the publish does.) Empty where the
    system does not tell.
    """
    try:
        told = Path(f"/proc/{os.getppid()}/stat").read_text("utf-8")
    except OSError:
        return ""
    # After the name, which may hold anything, come the state and the parent.
    return f"{socket.gethostname()}:{told.rpartition(')')[2].split()[1]}"


def gone(drivers: Iterable[str]) -> list[str]:
    """Of drivers of this host; a number that another process bears by now counts as alive."""
    return [driver for driver in drivers if not _is_alive(int(driver.rpartition(":")[2]))]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
