"""Waiting pulls: time from a publish to the last byte of the answer that has the message."""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from itertools import cycle
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import long_poll_clients
from benchmarks.contenders import run_in_processes
from benchmarks.database import own_database, query
from benchmarks.long_poll_clients import Received
from benchmarks.report import percentiles, print_report
from pulljobs import ids
from pulljobs.publishing import publish

API: Final = "benchmarks.web_asgi:application"
APPLICATION: Final = "pulljobs-long-poll"
CONNECT_SECONDS: Final = 6.0
CONNECTS_PER_SECOND: Final = 250
"""Pulls that a busy server accepts. The first message comes when all of them wait."""
LAST_SECONDS: Final = 3.0
SAMPLE_SECONDS: Final = 0.1
START_SECONDS: Final = 60.0


class ServerLoad(NamedTuple):
    """Load of the serving process, and of PostgreSQL, while messages are published."""

    threads: int
    """Most threads in any sample."""
    connections: int
    """Most database connections in any sample."""
    cpu_seconds: float
    database_cpu_seconds: float
    """CPU time of the processes of PostgreSQL, or 0 if it runs on another machine."""
    waiting: int
    """Pulls that waited before the first message."""


class Published(NamedTuple):
    """Messages that the publisher sent, with their times."""

    at: dict[str, float]
    """Unix times of the calls that published them, by message id."""
    took: list[float]
    """Seconds of these calls, each with two commits."""
    cpu_seconds: float


def run(options: argparse.Namespace) -> None:
    """Measure with each number of consumers and report the worst figures."""
    with own_database():
        rows = [
            measure(options.clients, consumers, options.rate, options.seconds)
            for consumers in options.consumers
        ]
    worst = {
        name: max(row[name] for row in rows)
        for name in ("p99 ms", "lost", "most threads", "most connections")
    }
    title = f"{options.clients} waiting pulls, {options.rate:g} messages a second"
    print_report({title: rows}, worst, as_json=options.json)


def measure(clients: int, consumers: int, rate: float, seconds: float) -> dict[str, Any]:
    """Serve, pull, publish and sample, each in a process, and return the row of the table."""
    names = long_poll_clients.make_consumers(consumers)
    with served() as (process, port):
        begin = time.time() + CONNECT_SECONDS + clients / CONNECTS_PER_SECOND
        end = begin + seconds
        works: list[Callable[[], Any]] = [
            lambda: long_poll_clients.pull_until(port, names, clients, begin, end + LAST_SECONDS),
            lambda: _publish(names, rate, begin, end),
            lambda: _sample(process, begin, end),
        ]
        received, published, sampled = run_in_processes(works)
    return _row(clients, consumers, seconds, received, published, sampled)


def _row(
    clients: int,
    consumers: int,
    seconds: float,
    received: Received,
    published: Published,
    sampled: ServerLoad,
) -> dict[str, Any]:
    sent = published.at
    took = [received.at[id] - at for id, at in sent.items() if id in received.at]
    p50, p99 = percentiles(took)
    used = {
        "server": sampled.cpu_seconds,
        "database": sampled.database_cpu_seconds,
        "clients": received.cpu_seconds,
        "publisher": published.cpu_seconds,
    }
    return {
        "pulls": clients,
        "consumers": consumers,
        "waiting at first": sampled.waiting,
        "messages": len(sent),
        "messages/s": len(sent) / seconds,
        "lost": len(sent) - len(took),
        "p50 ms": p50,
        "p99 ms": p99,
        "longest ms": max(took, default=0.0) * 1000,
        "publish p99 ms": percentiles(published.took)[1],
        **{f"{name} cpu ms": spent * 1000 / max(len(sent), 1) for name, spent in used.items()},
        "busy cores": sum(used.values()) / seconds,
        "most threads": sampled.threads,
        "most connections": sampled.connections,
    }


def _publish(names: list[str], rate: float, begin: float, end: float) -> Published:
    """Publish to the channels in turn, `rate` messages a second or as many as possible."""
    sent: dict[str, float] = {}
    took: list[float] = []
    due, started = begin, time.process_time()
    for name in cycle(names):
        time.sleep(max(0.0, due - time.time()))
        if (now := time.time()) >= end:
            break
        sent[ids.encode(publish(name, b"x" * 100).message_id)] = now
        took.append(time.time() - now)
        due += 1 / rate
    return Published(sent, took, time.process_time() - started)


def _sample(process: int, begin: float, end: float) -> ServerLoad:
    """Sample threads, connections and CPU time of the process between two Unix times."""
    threads = connections = 0
    time.sleep(max(0.0, begin - time.time()))
    [(waiting,)] = query("SELECT sum(waiting) FROM pulljobs_pull_waiter")
    server, database = _cpu_seconds(process), _database_cpu_seconds()
    while time.time() < end:
        threads = max(threads, len(list(Path(f"/proc/{process}/task").iterdir())))
        rows = query(
            f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{APPLICATION}'"
        )
        connections = max(connections, int(str(rows[0][0])))
        time.sleep(SAMPLE_SECONDS)
    server, database = _cpu_seconds(process) - server, _database_cpu_seconds() - database
    return ServerLoad(threads, connections, server, database, int(str(waiting)))


def _database_cpu_seconds() -> float:
    [(backend,)] = query("SELECT pg_backend_pid()")
    if not Path(f"/proc/{backend}").exists():
        return 0.0
    parent = _stat(backend)[1]
    stats = (_stat(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())
    live = [stat for stat in stats if stat[1:2] == [parent]]
    return sum(map(_spent, live)) + _spent(_stat(parent), children=True)


def _cpu_seconds(process: int) -> float:
    return _spent(_stat(process))


def _spent(stat: list[str], *, children: bool = False) -> float:
    """Return the CPU seconds in the fields of /proc/PID/stat, from the state of the process on.

    With `children` they include those of children that have ended.
    """
    return sum(map(int, stat[11 : 15 if children else 13])) / os.sysconf("SC_CLK_TCK")


def _stat(process: object) -> list[str]:
    """Return the fields of a process after its name, or none if it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return []


@contextmanager
def served(application: str = API) -> Iterator[tuple[int, int]]:
    """Serve the application in a process. Yield its process id and its port."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # uvicorn takes a socket given by --fd for a Unix socket and leaves Nagle's algorithm on: each
    # answer would wait 40 ms for an ACK.
    command = [
        sys.executable, "-m", "uvicorn", application, "--lifespan", "off", "--backlog", "1000",
        "--port", str(port), "--log-level", "warning", "--no-access-log",
    ]  # fmt: skip
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "benchmarks.web_settings",
        "PGAPPNAME": APPLICATION,
    }
    process = subprocess.Popen(command, env=environment)
    try:
        _wait_until_up(port)
        yield process.pid, port
    finally:
        process.terminate()
        if process.wait(START_SECONDS) not in (0, -signal.SIGTERM):
            raise SystemExit("The server ended with an error: its messages are above.")


def _wait_until_up(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        client = HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
        with suppress(ConnectionRefusedError), closing(client):
            client.request("GET", "/")
            client.getresponse().read()
            return
        time.sleep(SAMPLE_SECONDS)
    raise SystemExit(f"The server did not answer within {START_SECONDS:g} s.")
