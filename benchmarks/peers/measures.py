"""What is measured of a peer; each returns plain values that go into the record as they are."""

import subprocess
import time
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import psutil
import psycopg

from benchmarks.peers import databases
from benchmarks.peers.databases import Connection
from benchmarks.peers.environments import Environment, NotRun
from benchmarks.peers.peer import Peer
from benchmarks.peers.processes import (
    ORDER_SECONDS,
    Server,
    Workers,
    order,
    start_order,
    told,
    working,
)

Figures = dict[str, Any]

FAILURES: Final = (
    NotRun, RuntimeError, TimeoutError, ValueError,
    subprocess.SubprocessError, psycopg.Error, psutil.Error,
)  # fmt: skip
"""What a measure may raise."""

LEAST_PAUSE: Final = 0.03
CALM: Final = 20
"""Asking how much is left may take a twentieth of a server process."""
PUBLISHERS: Final = 4
FIRST: Final = 0.2
LAST: Final = 0.8
MARK_SECONDS: Final = 0.5
STUCK_SECONDS: Final = 4.0
"""More than any peer leaves between two polls or flushes."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    jobs: int
    publish_seconds: float
    drain_seconds: float
    latency_seconds: float
    held_seconds: float
    held_rate: float
    held_jobs: int
    held_together: int


def publish(peer: Peer, environment: Environment, empty: str, how: str, sizes: Sizes) -> Figures:
    """Jobs a second from one process, one by one or many; None where the peer has no such call."""
    with databases.copied(empty) as database:
        said = order(peer, environment, database, "publish", how, sizes.jobs, sizes.publish_seconds)
    return {"rate": said["published"] / said["seconds"] if said["published"] else None}


def fill(
    peer: Peer, environment: Environment, database: str, jobs: int, *, waiting: int = 0
) -> Figures:
    """Queue so many by the fastest call it has; WAL bytes a job."""
    with databases.connect(database) as session:
        start = databases.position(session)
        done = order(peer, environment, database, "publish", "many", jobs, 0)
        if not done["published"]:
            _publish_together(peer, environment, database, jobs)
        wal = databases.wal_since(session, start)
        queued = databases.left(session, peer) - waiting
    if queued != jobs:
        raise RuntimeError(f"{queued} jobs are there after {jobs} were published.")
    return {"wal": wal / jobs}


def _publish_together(peer: Peer, environment: Environment, database: str, jobs: int) -> None:
    """One by one takes long, so several processes do it."""
    shares = [jobs // PUBLISHERS] * (PUBLISHERS - 1)
    publishers = [
        start_order(peer, environment, database, "publish", "one", share, 0)
        for share in (*shares, jobs - sum(shares))
    ]
    for publisher in publishers:
        told(publisher, ORDER_SECONDS)


def drain(
    peer: Peer,
    environment: Environment,
    database: str,
    *,
    processes: int,
    handler: str,
    seconds: float,
) -> Figures:
    """In the middle of a drain that every process takes part in; seconds: how long, at the most."""
    with (
        databases.connect(database) as session,
        working(
            peer, environment, database, processes=processes, handler=handler, hold=True
        ) as workers,
    ):
        workers.gather(processes)
        return _drained(peer, session, workers, seconds)


def _drained(peer: Peer, session: Connection, workers: Workers, seconds: float) -> Figures:
    marks = _Marks(peer, session, workers)
    workers.release()
    marks.watch(seconds)
    return marks.figures()


class _Mark(NamedTuple):
    at: float
    left: int
    worker_cpu: float
    server_cpu: float | None
    wal: float


class _Marks:
    """What had been done and spent at moments when the database just said that more was done.

    The first once a fifth is done, the last when four fifths are: between them as many jobs are
    claimed as are finished, whatever a peer claims ahead and however late it writes.
    """

    def __init__(self, peer: Peer, session: Connection, workers: Workers) -> None:
        self._peer, self._session, self._workers = peer, session, workers
        self._server, self._log = Server(session), databases.position(session)
        self._jobs = databases.left(session, peer)
        self._marks: list[_Mark] = []
        self._start = self._mark(time.perf_counter(), self._jobs)

    def watch(self, seconds: float) -> None:
        start = moved = time.perf_counter()
        before = self._jobs
        while True:
            asked = time.perf_counter()
            left = databases.left(self._session, self._peer)
            now = time.perf_counter()
            if left != before:
                before, moved = left, now
                self._maybe_mark((asked + now) / 2, left, start)
            if left <= (1 - LAST) * self._jobs or now > min(start + seconds, moved + STUCK_SECONDS):
                return
            time.sleep(max(LEAST_PAUSE, CALM * (now - asked)))

    def _maybe_mark(self, now: float, left: int, start: float) -> None:
        done = 1 - left / self._jobs
        if self._marks:
            due = done >= LAST or now > self._marks[-1].at + MARK_SECONDS
        else:
            due = done >= FIRST or now > start + MARK_SECONDS
        if due:
            self._marks.append(self._mark(now, left))

    def _mark(self, now: float, left: int) -> _Mark:
        cpu, server_cpu = self._workers.cpu(), self._server.cpu()
        return _Mark(now, left, cpu, server_cpu, databases.wal_since(self._session, self._log))

    def figures(self) -> Figures:
        """Of the time between the first mark and the last, a job."""
        if not self._marks:
            raise RuntimeError("Too few jobs were done to tell a rate.")
        first, last = self._marks[0] if len(self._marks) > 1 else self._start, self._marks[-1]
        done = first.left - last.left
        server_cpu = (
            None
            if first.server_cpu is None or last.server_cpu is None
            else (last.server_cpu - first.server_cpu) / done
        )
        return {
            "rate": done / (last.at - first.at),
            "worker_cpu": (last.worker_cpu - first.worker_cpu) / done,
            "server_cpu": server_cpu,
            "wal": (last.wal - first.wal) / done,
        }
