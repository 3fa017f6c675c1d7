"""Histories of processes, in append-only files outside of the database.

A record is written before a request is sent or after its answer came, so the database acts between
the two times. Each process has a file of its own, so a process that is killed while it writes
spoils only its own last record.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from time import monotonic  # bound here, so that the clock fault does not move it
from typing import Any, NamedTuple

PUBLISHED, ROLLED_BACK = "published", "rolled_back"
CLAIMED, RENEWED, STARTED, ENDED = "claimed", "renewed", "started", "ended"
SENT, ANSWERED, GIVING_BACK = "sent", "answered", "giving_back"
KILLED, STOPPED, CONTINUED = "killed", "stopped", "continued"
WORKED = "worked"
"""Sign of life of a handler in an HTTP client, which must not go on after its lease."""
FROZE = "froze"
"""A handler kept the interpreter of its process to itself from `since` to `at`."""
LOCKED = "locked"
"""Rows of a job, or of the jobs of a killed process, were locked from `since` to `at`."""
THROTTLED = "throttled"
"""Claims of a consumer, whose id is the outcome, were to stop for `seconds`."""
READY, UNREADY = "ready", "unready"
"""Answers to `/readyz` about one process."""

DELIVERED, DEAD, QUEUED = "DELIVERED", "DEAD", "QUEUED"
LOST, REFUSED = "LOST", "REFUSED"


class Line(NamedTuple):
    """Event of one job in one process. Times are of the monotonic clock."""

    event: str
    job: int
    lease_token: str
    process: int
    since: float
    """Time at which the request was sent."""
    at: float
    """Time at which the record was written."""
    outcome: str = "-"
    """Event of a sent settlement, state, LOST or REFUSED of an answer, or cost of a new job."""
    seconds: float = 0
    """Lease duration of a claim or a renewal, or delay of a publish."""
    retry_count: int = 0
    deliveries: int = 0


class Entry(NamedTuple):
    """Fields of one job in a record, which may be about several jobs."""

    job: int
    lease_token: object = "-"
    outcome: str = "-"
    retry_count: int = 0
    deliveries: int = 0


class HistoryWriter:
    """Writer of the history of this process, in a file named by `role`, such as worker, and pid.

    The file is opened for the first record. After a fork the child opens one of its own.
    """

    def __init__(self, directory: Path, role: str) -> None:
        self._directory, self._role = directory, role
        self._file, self._pid = -1, 0

    def write(
        self,
        event: str,
        entries: Iterable[Entry],
        *,
        since: float | None = None,
        seconds: float = 0,
    ) -> None:
        """Append a record of an event, with an entry for each job, in one write.

        `since` is the monotonic time at which the event began, by default now. `seconds` is the
        lease duration or the delay.
        """
        at = monotonic()
        row = [event, at if since is None else since, at, seconds, list(entries)]
        os.write(self._open(), (json.dumps(row, default=str) + "\n").encode())

    def _open(self) -> int:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            name = self._directory / f"{self._role}-{self._pid}"
            self._file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        return self._file


def read_history(directory: Path) -> list[Line]:
    """Return the lines of all processes in the order in which they were written."""
    lines = [line for file in directory.iterdir() for line in read_file(file)]
    return sorted(lines, key=lambda line: line.at)


def read_file(file: Path) -> Iterator[Line]:
    """Yield the lines of one process in the order in which they were written."""
    if not file.exists():
        return
    process = process_of(file)
    for text in file.read_bytes().splitlines(keepends=True):
        if text.endswith(b"\n"):  # Otherwise the process was killed while it wrote.
            event, since, at, seconds, entries = json.loads(text)
            yield from _lines(event, process, since, at, seconds, entries)


def _lines(
    event: str, process: int, since: float, at: float, seconds: float, entries: Sequence[Any]
) -> Iterator[Line]:
    for job, lease_token, outcome, retry_count, deliveries in entries:
        yield Line(
            event, job, lease_token, process, since, at, outcome, seconds, retry_count, deliveries
        )


def process_of(file: Path) -> int:
    """Return the process id in the name of a history file."""
    return int(file.name.rpartition("-")[2])
