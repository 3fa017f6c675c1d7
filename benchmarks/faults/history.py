"""What processes did, in append-only files that no database writes.

A record is written before a request is sent or after its answer came, so the moment at which the
database did it lies between the two. Each process has a file of its own, so a process that is
killed while it writes spoils its own last record at most.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from time import monotonic  # bound here: the clock fault moves those of others
from typing import Any, NamedTuple

PUBLISHED, ROLLED_BACK = "published", "rolled_back"
CLAIMED, RENEWED, STARTED, ENDED = "claimed", "renewed", "started", "ended"
SENT, ANSWERED, GIVING_BACK = "sent", "answered", "giving_back"
KILLED, STOPPED, CONTINUED = "killed", "stopped", "continued"

DELIVERED, DEAD, QUEUED = "DELIVERED", "DEAD", "QUEUED"
LOST, REFUSED = "LOST", "REFUSED"


class Line(NamedTuple):
    """`since` is when the request was sent, `at` when the record was written."""

    event: str
    job: int
    token: str
    process: int
    since: float
    at: float
    said: str = "-"
    """Of what is sent: the event; of an answer: the state, LOST or REFUSED."""
    seconds: float = 0
    """Of a claim or a renewal: the lease."""
    retry_count: int = 0
    deliveries: int = 0


class Entry(NamedTuple):
    """What a record says of one job."""

    job: int
    token: object = "-"
    said: str = "-"
    retry_count: int = 0
    deliveries: int = 0


class Pen:
    """Writes the file of this process; opened at the first word, so that a fork has its own."""

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
        """One record in one write; `since` None: now."""
        at = monotonic()
        row = [event, at if since is None else since, at, seconds, list(entries)]
        os.write(self._open(), (json.dumps(row, default=str) + "\n").encode())

    def _open(self) -> int:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            name = self._directory / f"{self._role}-{self._pid}"
            self._file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        return self._file


def read(directory: Path) -> list[Line]:
    """All that all processes wrote, by the time it was written."""
    lines = [line for file in directory.iterdir() for line in _read(file)]
    return sorted(lines, key=lambda line: line.at)


def _read(file: Path) -> Iterator[Line]:
    process = process_of(file)
    for text in file.read_bytes().splitlines(keepends=True):
        if text.endswith(b"\n"):  # else its writer was killed over it
            event, since, at, seconds, entries = json.loads(text)
            yield from _lines(event, process, since, at, seconds, entries)


def _lines(
    event: str, process: int, since: float, at: float, seconds: float, entries: Sequence[Any]
) -> Iterator[Line]:
    for job, token, said, retry_count, deliveries in entries:
        yield Line(event, job, token, process, since, at, said, seconds, retry_count, deliveries)


def process_of(file: Path) -> int:
    return int(file.name.rpartition("-")[2])
