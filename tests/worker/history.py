"""History of the handlers of worker processes, in a file outside the database."""

import os
import time
from pathlib import Path
from typing import NamedTuple

FILE = "WORKER_HISTORY"


class Line(NamedTuple):
    event: str
    job: int
    pid: int
    at: float
    """Time of the monotonic clock that all processes of the machine share."""


def note(event: str, job: int) -> None:
    """Append a line with a single write, so that lines of several processes never mix."""
    file = os.open(os.environ[FILE], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, f"{event} {job} {os.getpid()} {time.monotonic()}\n".encode())
    finally:
        os.close(file)


def read_lines(file: Path) -> list[Line]:
    if not file.exists():
        return []
    rows = (line.split() for line in file.read_text().splitlines())
    return [Line(event, int(job), int(pid), float(at)) for event, job, pid, at in rows]
