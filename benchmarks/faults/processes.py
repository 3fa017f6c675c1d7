"""Processes of a run, and the signals that the director sends to them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Final

from benchmarks.faults.guard import Guard
from benchmarks.faults.history import CONTINUED, KILLED, STOPPED, Line, process_of
from benchmarks.faults.prober import READYZ, ask, free_port
from benchmarks.faults.proxy import SOCKET
from benchmarks.faults.roles import clock
from benchmarks.faults.server import wait_for
from example_project.state import BASE_DIR

PACKAGE: Final = "benchmarks.faults"
ROLES: Final = f"{PACKAGE}.roles"
SETTINGS: Final = "benchmarks.faults.settings"


class Processes:
    """All processes of one run. `directory` holds their histories, outputs and clocks."""

    def __init__(
        self,
        directory: Path,
        host: Path,
        *,
        lease_duration: float,
        broken: str = "",
        older: Path | None = None,
        timing: Mapping[str, str] | None = None,
    ) -> None:
        self.directory, self.history = directory, directory / "history"
        self.enough, self.over = directory / "enough", directory / "over"
        """Files whose existence ends publishers without a number of jobs, and raw claimers."""
        self.orders = directory / "orders"
        """File with the jobs that a paced publisher publishes next."""
        self.history.mkdir()
        self.lease_duration, self.older = lease_duration, older
        self.lines: list[Line] = []
        """History of the director: signals, locks, and answers of health ports."""
        self.started: list[Process] = []
        self.guard = Guard()
        """Guard that kills what was started if this process is killed."""
        self.environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": SETTINGS,
            "FAULTS_HISTORY": str(self.history),
            "FAULTS_HOST": str(host),
            "FAULTS_LEASE": str(lease_duration),
            "FAULTS_BREAK": broken,
            **(timing or {}),
        }

    def prepare(
        self,
        *,
        exclusive: bool,
        group: bool,
        limits: Mapping[str, object],
        by_key: Mapping[str, object],
        push: bool = False,
    ) -> None:
        """Create the tables and the consumers, with limits of their own or of their group.

        `by_key` are the limits of each key. With `push`, create a push consumer, too, and start its
        endpoint.
        """
        port = free_port()
        options = {
            "lease_duration": self.lease_duration,
            "exclusive": exclusive,
            "group": group,
            "limits": limits,
            "by_key": by_key,
            "endpoint": f"http://127.0.0.1:{port}/" if push else "",
        }
        if push:
            self.start("endpoint", f"{ROLES}.endpoint", str(port))
        done = self.run_to_end(f"{ROLES}.prepare", json.dumps(options))
        if done.returncode:
            raise RuntimeError(f"The database could not be prepared: {done.stderr}")

    def change_limits(self, **options: object) -> tuple[float, float] | None:
        """Change the limits of all consumers. Return the Unix times before and after.

        `options` are the arguments of `roles.change_limits`. Return None after an error.
        """
        done = self.run_to_end(f"{ROLES}.change_limits", json.dumps(options))
        if done.returncode:
            return None
        since, at = json.loads(done.stdout)
        return since, at

    def proxy(self, server: Path) -> "Process":
        """Start a proxy to PostgreSQL, which processes that are started later connect to."""
        self.environment["FAULTS_HOST"] = str(self.directory)
        proxy = self.start("proxy", f"{PACKAGE}.proxy", str(self.directory), str(server))
        wait_for((self.directory / SOCKET).exists, "the proxy")
        return proxy

    def web_server(self) -> "Process":
        """Start a server for HTTP clients, which leaves no history, and wait until it is ready."""
        port = free_port()
        command = ("uvicorn", "benchmarks.faults.web:application", "--port", str(port))
        flags = ("--lifespan", "off", "--log-level", "warning")
        settings = f"{PACKAGE}.web_settings"
        server = self.start(
            *("server", *command, *flags),
            port=port,
            DJANGO_SETTINGS_MODULE=settings,
            FAULTS_HISTORY="",
        )
        wait_for(lambda: ask(port, READYZ).status == HTTPStatus.OK, "the HTTP server")
        return server

    def web_proxy(self, server: "Process") -> "Process":
        """Start a proxy before a server for HTTP clients."""
        port = free_port()
        proxy = self.start("proxy", f"{PACKAGE}.proxy", str(port), str(server.port), port=port)
        wait_for(lambda: ask(port, READYZ).status == HTTPStatus.OK, "the proxy of the HTTP server")
        return proxy

    def client(self, port: int, kind: str) -> "Process":
        """Start an HTTP client, whose handlers are async or plain functions as `kind` says."""
        return self.start("client", f"{ROLES}.client", f"http://127.0.0.1:{port}", kind, port=port)

    def order(self, count: int, channel: str = "faults", **payload: object) -> None:
        """Have the paced publisher publish jobs with this payload."""
        with self.orders.open("a") as orders:
            orders.write(json.dumps({"channel": channel, "count": count, **payload}) + "\n")

    def worker(self, *flags: str, port: int = 0) -> "Process":
        """Start a worker. Every other worker runs the older release if there is one."""
        followed = self.directory / f"clock-{len(self.started)}"
        clock.make(followed)
        is_turn = sum(process.role == "worker" for process in self.started) % 2 == 0
        command = ("django", "runpullworker", "--verbosity", "0", *flags)
        return self.start("worker", *command, older=is_turn, port=port, FAULTS_CLOCK=str(followed))

    def publisher(self, *, older: bool = False, **script: object) -> "Process":
        """Start a publisher. `roles.publisher` describes the values of its script."""
        script["until"] = str(self.enough)
        return self.start("publisher", f"{ROLES}.publisher", json.dumps(script), older=older)

    def paced_publisher(self, **script: object) -> "Process":
        """Start a paced publisher. `roles.paced_publisher` describes the values of its script."""
        files = {"until": str(self.enough), "orders": str(self.orders)}
        return self.start("publisher", f"{ROLES}.paced_publisher", json.dumps({**script, **files}))

    def claimer(self, pause: float, batch: int) -> "Process":
        """Start a raw claimer, which claims up to `batch` jobs, then pauses for `pause` seconds."""
        return self.start("claimer", f"{ROLES}.claimer", str(self.over), str(pause), str(batch))

    def start(
        self, role: str, *arguments: str, older: bool = False, port: int = 0, **given: str
    ) -> "Process":
        """Start a program. `role`, such as "worker", is the label by which `living` finds it.

        `given` are environment variables. It runs the code of the older release if `older` is set
        and the run has one.
        """
        tree = self.older if older and self.older else BASE_DIR
        self.started.append(Process(self, role, arguments, given, tree, port))
        return self.started[-1]

    def run_to_end(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a helper program to its end, with pulljobs unbroken and no history of its actions."""
        environment = {**self.environment, "FAULTS_BREAK": ""}
        del environment["FAULTS_HISTORY"]
        return subprocess.run(
            [sys.executable, "-m", *arguments],
            env=environment,
            cwd=BASE_DIR,
            capture_output=True,
            text=True,
        )

    def living(self, role: str) -> list["Process"]:
        """Return the processes started as `role`, such as "worker", that have not ended."""
        return [process for process in self.started if process.role == role and process.is_alive()]

    def note(self, event: str, pids: Sequence[int], since: float) -> None:
        """Add a line of this event to the history for each process that got a signal."""
        at = time.monotonic()
        self.lines += [Line(event, 0, "-", pid, since, at) for pid in pids]

    def unexpected_ends(self) -> list[str]:
        """Return a sentence for each process that ended, was not killed and did not exit with 0."""
        killed = {line.process for line in self.lines if line.event == KILLED}
        living = {pid for process in self.started for pid in process.pids() if process.is_alive()}
        wrote = {process_of(file): file.name for file in self.history.iterdir()}
        ended = {process.popen.pid for process in self.started if process.popen.returncode == 0}
        return [
            f"{name} ended by itself"
            for pid, name in wrote.items()
            if pid not in living | killed | ended
        ]

    def idle_releases(self) -> list[str]:
        """Return a sentence for every release, older or present, whose workers did no job."""
        workers = [process for process in self.started if process.role == "worker"]
        trees = {worker.tree for worker in workers}
        busy = {worker.tree for worker in workers if worker.at_work() or worker.has_worked}
        return [f"no worker of {tree} took a job" for tree in trees - busy]

    def end(self) -> None:
        """Kill all processes that are left."""
        for process in self.started:
            process.kill_all()
        self.guard.close()


class Process:
    """Started process with its children, all in one process group."""

    def __init__(
        self,
        processes: Processes,
        role: str,
        arguments: Sequence[str],
        given: dict[str, str],
        tree: Path,
        port: int,
    ) -> None:
        self.processes, self.role, self.tree = processes, role, tree
        self.port, self.arguments = port, arguments
        self.clock = Path(given.get("FAULTS_CLOCK", ""))
        self.has_worked = False
        """True once a process was seen at work, even if it is dead by now."""
        self.output = processes.directory / f"{role}-{len(processes.started)}.log"
        with self.output.open("wb") as output:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=tree,
                env={**processes.environment, **_path(tree), "FAULTS_ROLE": role, **given},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        processes.guard.protect(self.popen.pid)

    @property
    def pid(self) -> int:
        """Id of the process that was started, not of its children."""
        return self.popen.pid

    def is_alive(self) -> bool:
        """Return True if the process has not ended."""
        return self.popen.poll() is None

    def at_work(self) -> list[int]:
        """Return the ids of living processes that claimed or published, without a supervisor."""
        files = self.processes.history.glob(f"{self.role}-*")
        pids = [pid for file in files if self._is_ours(pid := process_of(file))]
        self.has_worked = self.has_worked or bool(pids)
        return [pid for pid in pids if pid != self.popen.pid] or pids

    def pids(self) -> list[int]:
        """Return the ids of the first process and of those at work."""
        return sorted({self.popen.pid, *self.at_work()})

    def kill(self, pids: Sequence[int]) -> None:
        """Kill these processes, and the whole group if the first process is among them."""
        since = time.monotonic()
        for pid in pids:
            self._send(pid, signal.SIGKILL)
        if self.popen.pid in pids:
            begun = self.at_work()
            self.kill_all()
            pids = sorted({*pids, *begun, *self.at_work()})
        self.processes.note(KILLED, pids, since)

    def kill_all(self) -> None:
        """Kill the process group and wait for the first process."""
        self._send_all(signal.SIGKILL)
        self.popen.wait()

    def stop(self, pids: Sequence[int], seconds: float) -> None:
        """Freeze these processes for `seconds`."""
        since = time.monotonic()
        for pid in pids:
            self._send(pid, signal.SIGSTOP)
        self.processes.note(STOPPED, pids, since)
        time.sleep(seconds)
        since = time.monotonic()
        for pid in pids:
            self._send(pid, signal.SIGCONT)
        self.processes.note(CONTINUED, pids, since)

    def end(self, seconds: float) -> int | None:
        """Send SIGTERM. Return the exit code, or None if the process does not end in time."""
        self.popen.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            return self.popen.wait(seconds)
        return None

    def _is_ours(self, pid: int) -> bool:
        with suppress(ProcessLookupError):
            return os.getpgid(pid) == self.popen.pid and not _is_zombie(pid)
        return False

    def _send(self, pid: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    def _send_all(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, number)


def _path(tree: Path) -> dict[str, str]:
    """Return variables by which a process imports the code in `tree`, not that of this checkout."""
    if tree == BASE_DIR:
        return {}
    start_up = Path(__file__).with_name("older_release")
    return {"PYTHONPATH": os.pathsep.join([str(tree), str(start_up)])}


def _is_zombie(pid: int) -> bool:
    """Return True if the process has ended and no process has waited for it yet.

    Without /proc return False: a process that was killed may then be killed and counted again.
    """
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"
