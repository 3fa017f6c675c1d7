"""Measures of a compared queue. Each returns plain values for the record."""

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
    ServerCpu,
    Workers,
    order,
    read_output,
    start_order,
    working,
)

Figures = dict[str, Any]

FAILURES: Final = (
    NotRun, RuntimeError, TimeoutError, ValueError,
    subprocess.SubprocessError, psycopg.Error, psutil.Error,
)  # fmt: skip
"""Exceptions that a measure may raise."""

LEAST_PAUSE: Final = 0.03
CALM: Final = 20
"""Pause between two counts, in times of a count: so counts take a twentieth of a core."""
PUBLISHERS: Final = 4
FIRST: Final = 0.2
LAST: Final = 0.8
MARK_SECONDS: Final = 0.5
STUCK_SECONDS: Final = 4.0
"""Seconds without progress that end a drain: longer than any queue pauses between flushes."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Numbers of jobs, lengths in seconds and rates of all measures."""

    jobs: int
    publish_seconds: float
    drain_seconds: float
    latency_seconds: float
    held_seconds: float
    held_rate: float
    held_jobs: int
    held_together: int


def publish(peer: Peer, environment: Environment, empty: str, how: str, sizes: Sizes) -> Figures:
    """Publish `one` or `many` messages a call, as `how` says. Return the messages a second.

    The rate is None if the queue has no such call. `empty` is the database whose copy is used.
    """
    with databases.copied(empty) as database:
        done = order(peer, environment, database, "publish", how, sizes.jobs, sizes.publish_seconds)
    return {"rate": done["published"] / done["seconds"] if done["published"] else None}


def fill(
    peer: Peer, environment: Environment, database: str, jobs: int, *, waiting: int = 0
) -> Figures:
    """Queue jobs by the fastest call of the compared queue. Return the WAL bytes a job.

    `waiting` is the number of jobs that are queued already.
    """
    with databases.connect(database) as session:
        start = databases.position(session)
        done = order(peer, environment, database, "publish", "many", jobs, 0)
        if not done["published"]:
            _publish_together(peer, environment, database, jobs)
        wal = databases.wal_since(session, start)
        queued = databases.count_left(session, peer) - waiting
    if queued != jobs:
        raise RuntimeError(f"{queued} jobs are queued after {jobs} were published.")
    return {"wal": wal / jobs}


def _publish_together(peer: Peer, environment: Environment, database: str, jobs: int) -> None:
    """Publish `jobs` jobs one by one, from several processes at a time."""
    shares = [jobs // PUBLISHERS] * (PUBLISHERS - 1)
    publishers = [
        start_order(peer, environment, database, "publish", "one", share, 0)
        for share in (*shares, jobs - sum(shares))
    ]
    for publisher in publishers:
        read_output(publisher, ORDER_SECONDS)


def drain(
    peer: Peer,
    environment: Environment,
    database: str,
    *,
    processes: int,
    handler: str,
    seconds: float,
) -> Figures:
    """Let workers do the queued jobs. Return rate, CPU and WAL, without start and end."""
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
    """Counts of unfinished jobs and costs at several times while workers do the jobs.

    The first is noted once a fifth is done or half a second is over, the last when four fifths are
    done or the time is over. Between them as many jobs are claimed as finished, even if a queue
    claims far ahead or writes late.
    """

    def __init__(self, peer: Peer, session: Connection, workers: Workers) -> None:
        self._peer, self._session, self._workers = peer, session, workers
        self._server, self._log = ServerCpu(session), databases.position(session)
        self._jobs = databases.count_left(session, peer)
        self._marks: list[_Mark] = []
        self._start = self._mark(time.perf_counter(), self._jobs)

    def watch(self, seconds: float) -> None:
        """Note progress until four fifths are done, the time is over or no job is done any more."""
        start = moved = time.perf_counter()
        before = self._jobs
        while True:
            asked = time.perf_counter()
            left = databases.count_left(self._session, self._peer)
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
        """Return jobs a second, and costs of a job, between the first and the last count."""
        if not self._marks:
            raise RuntimeError("Too few jobs were done to measure a rate.")
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
