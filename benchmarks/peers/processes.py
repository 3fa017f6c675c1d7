"""Orders to adapters (scripts that drive a queue), workers, CPU times of workers and server."""

import json
import os
import signal
import subprocess
import tempfile
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil

from benchmarks.peers import databases
from benchmarks.peers.databases import Connection
from benchmarks.peers.environments import Environment, NotRun
from benchmarks.peers.peer import Installable

START_SECONDS: Final = 30.0
GATHER_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 0.01
ORDER_SECONDS: Final = 600
OUTPUT: Final = 500
START: Final = 16
"""Bytes of a `JobStart` in the file of the adapters."""


def order(
    peer: Installable,
    environment: Environment,
    database: str,
    *words: object,
    folder: Path | None = None,
) -> dict[str, Any]:
    """Run a command of the adapter and return the JSON it prints last. Raise NotRun if it fails.

    With `folder` the command reads the files of the workers that have this folder.
    """
    command = [*environment.command, *map(str, words)]
    marks = {"PEER_FOLDER": str(folder)} if folder else {}
    done = subprocess.run(
        command,
        env=_variables(peer, environment, database) | marks,
        capture_output=True,
        text=True,
        timeout=ORDER_SECONDS,
    )
    if done.returncode:
        raise NotRun(f"`{words[0]}` failed: {done.stderr.strip()[-OUTPUT:]}")
    return _last(done.stdout)


def start_order(
    peer: Installable, environment: Environment, database: str, *words: object
) -> subprocess.Popen[bytes]:
    """Start a command of the adapter in the background and discard its errors."""
    return subprocess.Popen(
        [*environment.command, *map(str, words)],
        env=_variables(peer, environment, database),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def read_output(process: subprocess.Popen[bytes], seconds: float) -> dict[str, Any]:
    """Return the JSON that a background command prints last. Kill it after `seconds` and raise."""
    try:
        output, _errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        # Adapters on Node run in a child process.
        for child in _descendants(process.pid):
            child.kill()
        process.kill()
        process.wait()
        raise
    if process.returncode:
        raise RuntimeError(f"A publisher failed with {process.returncode}.")
    return _last(output.decode())


def _last(output: str) -> dict[str, Any]:
    lines = output.strip().splitlines()
    return dict(json.loads(lines[-1])) if lines and lines[-1].startswith("{") else {}


def _variables(peer: Installable, environment: Environment, database: str) -> dict[str, str]:
    return {**environment.variables, **databases.variables(database), "PEER_NAME": peer.name}


class JobStart(NamedTuple):
    """Times at which a job was published and its handler started, on the monotonic clock."""

    published: float
    started: float

    @property
    def waited(self) -> float:
        """Seconds from the publish to the start."""
        return self.started - self.published


class Workers:
    """Processes of the adapter's command `work`, in a session of their own."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process, self.folder = process, folder
        self._starts = folder / "starts"

    def gather(self, processes: int) -> None:
        """Wait until all processes have begun a job, or some time after the first process has."""
        self._wait("ready.*", 1, START_SECONDS)
        with suppress(TimeoutError):
            self._wait("ready.*", processes, GATHER_SECONDS)

    def release(self) -> None:
        """Let the processes go on that wait in their first job."""
        (self.folder / "go").touch()

    def wait_for_starts(self, count: int, seconds: float) -> None:
        """Wait until `count` jobs have started. Raise TimeoutError after `seconds`."""
        deadline = time.monotonic() + seconds
        while self.started() < count:
            self._check(deadline)
            time.sleep(LOOK_SECONDS)

    def started(self) -> int:
        """Return the number of jobs that the latency handler started."""
        return self._starts.stat().st_size // START if self._starts.exists() else 0

    def starts(self, skipped: int = 0) -> list[JobStart]:
        """Return the starts of jobs that the latency handler noted, after the first `skipped`."""
        with self._starts.open("rb") as file:
            file.seek(skipped * START)
            raw = file.read()
        times = array("d", raw[: len(raw) // START * START])
        return list(map(JobStart, times[::2], times[1::2]))

    def cpu(self) -> float:
        """Return the CPU seconds of all processes, including those that ended."""
        return cpu_of(psutil.Process(self._process.pid))

    def _wait(self, pattern: str, count: int, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while len(list(self.folder.glob(pattern))) < count:
            self._check(deadline)
            time.sleep(LOOK_SECONDS)

    def _check(self, deadline: float) -> None:
        if self._process.poll() is not None:
            raise NotRun(f"the worker ended: {self._output()}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"the worker did not start the jobs in time: {self._output()}")

    def _output(self) -> str:
        return (self.folder / "output").read_text(errors="replace").strip()[-OUTPUT:]

    def stop(self) -> None:
        """Kill the processes with all their children, and wait for the first of them."""
        for process in _descendants(self._process.pid):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def working(
    peer: Installable,
    environment: Environment,
    database: str,
    *,
    processes: int = 1,
    handler: str = "noop",
    hold: bool = False,
) -> Iterator[Workers]:
    """Run worker processes. With `hold` each waits in its first job until `Workers.release`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        marks = {"PEER_FOLDER": name, "PEER_HANDLER": handler, "PEER_HOLD": "1" if hold else "0"}
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(
                [*environment.command, "work", str(processes)],
                env=_variables(peer, environment, database) | marks,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        workers = Workers(process, folder)
        try:
            yield workers
        finally:
            workers.stop()


class ServerCpu:
    """CPU time of all processes of the PostgreSQL server, without that of the given session."""

    def __init__(self, session: Connection) -> None:
        self._session = session.info.backend_pid
        try:
            self._root = psutil.Process(self._session).parent()
        except psutil.NoSuchProcess:
            self._root = None

    def cpu(self) -> float | None:
        """Return the CPU seconds so far, or None if the server runs on another machine."""
        if self._root is None:
            return None
        return cpu_of(self._root) - _own_cpu(psutil.Process(self._session))


def cpu_of(root: psutil.Process) -> float:
    """Return the CPU seconds of a process tree, including ended processes it waited for."""
    return _own_cpu(root) + sum(map(_own_cpu, _descendants(root.pid)))


def _descendants(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def _own_cpu(process: psutil.Process) -> float:
    try:
        return sum(process.cpu_times()[:4])
    except psutil.NoSuchProcess:
        return 0.0
