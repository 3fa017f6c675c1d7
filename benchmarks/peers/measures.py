"""What is measured of a peer; each returns plain values that go into the record as they are."""

import time
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any, Final

from benchmarks.peers import databases
from benchmarks.peers.databases import Connection
from benchmarks.peers.environments import Environment
from benchmarks.peers.peer import Peer
from benchmarks.peers.processes import Server, Workers, order, start_order, working

Figures = dict[str, Any]

LEAST_PAUSE: Final = 0.05
CALM: Final = 20
"""Asking how much is left may take a twentieth of a server process."""
PUBLISHERS: Final = 4
SLOW: Final = 100
"""Jobs a second that one publisher is enough for."""
STARTED_SECONDS: Final = 5.0
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
            order(peer, environment, database, "publish", "one", jobs, 0)
        wal = databases.wal_since(session, start)
        queued = databases.left(session, peer) - waiting
    if queued != jobs:
        raise RuntimeError(f"{queued} jobs are there after {jobs} were published.")
    return {"wal": wal / jobs}


def drain(
    peer: Peer,
    environment: Environment,
    database: str,
    *,
    processes: int,
    handler: str,
    seconds: float,
) -> Figures:
    """From the moment that every process holds a job until all are done, or for so many seconds."""
    with (
        databases.connect(database) as session,
        working(
            peer, environment, database, processes=processes, handler=handler, hold=True
        ) as workers,
    ):
        workers.gather(processes)
        return _drained(peer, session, workers, seconds)


def _drained(peer: Peer, session: Connection, workers: Workers, seconds: float) -> Figures:
    server = Server(session)
    jobs = databases.left(session, peer)
    log, cpu, server_cpu = databases.position(session), workers.cpu(), server.cpu()
    start = time.perf_counter()
    workers.release()
    left, took = _watch(peer, session, start, seconds)
    done = jobs - left
    if not done:
        raise RuntimeError(f"No job was done in {took:.0f} s.")
    after = server.cpu()
    return {
        "rate": done / took,
        "all": left == 0,
        "worker_cpu": (workers.cpu() - cpu) / done,
        "server_cpu": None if after is None or server_cpu is None else (after - server_cpu) / done,
        "wal": databases.wal_since(session, log) / done,
    }


def _watch(peer: Peer, session: Connection, start: float, seconds: float) -> tuple[int, float]:
    """How many are left, and how long it took until then; what is stuck is not waited for."""
    before, moved = -1, start
    while True:
        asked = time.perf_counter()
        left = databases.left(session, peer)
        now = time.perf_counter()
        if left != before:
            before, moved = left, (asked + now) / 2
        if left == 0 or now - start > seconds or now - moved > STUCK_SECONDS:
            return left, moved - start
        time.sleep(max(LEAST_PAUSE, CALM * (now - asked)))


def latency(
    peer: Peer, environment: Environment, empty: str, rate: float, seconds: float
) -> Figures:
    """Seconds from just before the publish to the first line of the handler, one worker process."""
    with (
        databases.copied(empty) as database,
        working(peer, environment, database, handler="latency") as workers,
    ):
        order(peer, environment, database, "pace", 1, 1)
        workers.wait_for_latencies(1, STARTED_SECONDS * 4)
        before, publishers = len(workers.latencies()), 1 if rate < SLOW else PUBLISHERS
        paces = [
            start_order(peer, environment, database, "pace", rate / publishers, seconds)
            for _ in range(publishers)
        ]
        for pace in paces:
            pace.wait()
        _await_rest(workers, before + round(rate * seconds))
        return _latencies(workers.latencies()[before:], rate * seconds)


def _await_rest(workers: Workers, wanted: int) -> None:
    try:
        workers.wait_for_latencies(wanted, STARTED_SECONDS)
    except TimeoutError:
        return  # What did not start is in the figure `started`.


def _latencies(seconds: list[float], wanted: float) -> Figures:
    return {
        "p50": median(seconds),
        "p99": quantiles(seconds, n=100, method="inclusive")[98],
        "started": len(seconds) / wanted,
    }
