"""Server and processes that faults act on."""

import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

from benchmarks.faults.plan import Plan
from benchmarks.faults.prober import free_port
from benchmarks.faults.processes import Process, Processes
from benchmarks.faults.server import OwnServer, Restart

WHOLE: Final = 0.25
"""Share of the kills and stops that hit a whole worker with its supervisor."""
CLIENT_KINDS: Final = ("async", "plain")
QUICK_CLAIMS: Final = (0.0, 40)
"""Pause in seconds and largest claim of a raw claimer that competes with workers."""
SLOW_CLAIMS: Final = (0.3, 5)
"""Pause in seconds and largest claim of a raw claimer that leaves most jobs to workers."""


@dataclass
class Targets:
    """Server and processes that faults act on."""

    server: OwnServer
    processes: Processes
    plan: Plan
    proxies: list[Process] = field(default_factory=list)
    restarts: list[Restart] = field(default_factory=list)
    kills: int = 0
    web_port: int = 0
    """Port at which HTTP clients reach their server."""

    def pause(self) -> None:
        """Wait for about the length of a fault."""
        time.sleep(self.plan.hold * random.uniform(0.5, 1.5))

    @contextmanager
    def superuser(self) -> Iterator[psycopg.Connection[Any]]:
        """Connect as the superuser."""
        with self.server.connect(autocommit=True) as connection:
            yield connection

    def start_worker(self) -> Process:
        """Start a worker, with a health port if the plan has one fault at a time."""
        flags, port = self.plan.worker_flags, 0
        if self.plan.rounds:
            port = free_port()
            flags = (*flags, "--health-port", str(port))
        return self.processes.worker(*flags, port=port)

    def start_claimer(self) -> Process:
        """Start a raw claimer: a process that claims by the Python API, without a worker's code."""
        return self.processes.claimer(*(QUICK_CLAIMS if self.plan.rate is None else SLOW_CLAIMS))

    def start_client(self, kind: str) -> Process:
        """Start an HTTP client, whose handlers are async or plain functions as `kind` says."""
        return self.processes.client(self.web_port, kind)

    def start_web_server(self, *, behind_a_proxy: bool) -> None:
        """Start the server of the HTTP clients, and a proxy before it if asked."""
        server = self.processes.web_server()
        self.web_port = server.port
        if behind_a_proxy:
            proxy = self.processes.web_proxy(server)
            self.proxies.append(proxy)
            self.web_port = proxy.port

    def signal_proxies(self, number: int) -> None:
        """Send a signal to all proxies."""
        if not self.proxies:
            raise LookupError("No proxy runs: a plan with this fault starts one.")
        for proxy in self.proxies:
            proxy.popen.send_signal(number)

    def choose_victim(self) -> tuple[Process, list[int]]:
        """Choose a worker or raw claimer. Return it, and pids of one or all of its processes."""
        processes = [*self.processes.living("worker"), *self.processes.living("claimer")]
        working = [process for process in processes if process.at_work()] or processes
        worker = random.choice(working)
        if random.random() < WHOLE:
            return worker, worker.pids()
        return worker, [random.choice(worker.at_work() or worker.pids())]

    def kill_whole(self, process: Process) -> list[int]:
        """Kill a process with its children and start another. Return the ids of the killed."""
        pids = process.pids()
        process.kill(pids)
        self.kills += 1
        self.replace(process)
        return pids

    def lose_clients(self) -> None:
        """Make the proxies keep open the server sessions of clients that end within ten seconds."""
        self.signal_proxies(signal.SIGHUP)
        time.sleep(PROXY_SECONDS)

    def replace(self, dead: Process) -> None:
        """Start another worker, HTTP client or raw claimer in place of a dead one."""
        if dead.role == "worker":
            self.start_worker()
        elif dead.role == "client":
            self.start_client(dead.arguments[-1])
        else:
            self.start_claimer()


PROXY_SECONDS: Final = 0.1
"""Time for a proxy to handle a signal."""
