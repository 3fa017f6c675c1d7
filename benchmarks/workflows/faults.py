"""Director of `python -m benchmarks workflow-faults`.

Workers do runs and members of batches, and a sender publishes them and sends signals. Every process
injects faults into itself between two statements (`injector`). The director continues processes
that are stopped, starts those that ended, and judges the tables at the end (`checker`). Then it
plants violations that the checker has to name.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg

from benchmarks.faults.guard import Guard
from benchmarks.faults.server import OwnServer, own_server
from benchmarks.workflows import checker, planting
from benchmarks.workflows.injector import ENOUGH, FAULTS
from example_project.state import BASE_DIR

SETTINGS: Final = "benchmarks.workflows.faults_settings"
LOOK_SECONDS: Final = 0.2
STALLED_SECONDS: Final = 180.0
"""Time without a fault or an end, even on a busy machine, after which runs count as stuck."""
STOP_SECONDS: Final = 180
STOPPED_LEASES: Final = (1.2, 2.5)
"""Length of a stop in lease durations."""
LEFT: Final = (
    f"SELECT (SELECT count(*) FROM ({checker.LIVE}) AS live) + (SELECT count(*)"
    " FROM pulljobs_batch WHERE completed_at IS NULL)"
)
PROGRESS: Final = (
    "SELECT (SELECT count(*) FROM pulljobs_archived_job), (SELECT count(*) FROM pulljobs_attempt)"
)


def run(options: argparse.Namespace) -> None:
    """Run workflows under faults and report. Exit with 1 if a check fails."""
    seed = options.seed if options.seed is not None else random.randrange(1 << 31)
    random.seed(seed)
    with own_server(options.state) as server, tempfile.TemporaryDirectory() as folder:
        processes = ProofProcesses(server, Path(folder), seed, options)
        with processes.running():
            loop = FaultLoop(server, processes, options)
            loop.inject_faults()
            loop.wait_for_the_rest()
        report = {"seed": seed, **_judge(server, processes, options)}
    print(json.dumps(report) if options.json else "\n".join(_lines(report)))
    if not report["clean"]:
        sys.exit(1)


class ProofProcesses:
    """Workers and the sender, started again when they end."""

    def __init__(
        self, server: OwnServer, folder: Path, seed: int, options: argparse.Namespace
    ) -> None:
        self.folder = folder
        self._environment = os.environ | {
            "DJANGO_SETTINGS_MODULE": SETTINGS,
            "FAULTS_HOST": str(server.directory),
            "PROOF_FOLDER": str(folder),
            "PROOF_BREAK": options.broken,
        }
        self._seed = str(seed)
        self._lease_duration = options.lease_duration
        until = str(folder / ENOUGH)
        words = ("--processes", str(options.processes), "--concurrency", "4", "--verbosity", "0")
        worker = ("django", "runpullworker", *words)
        sender = ("benchmarks.workflows.sender", str(options.live), until, self._seed)
        self._commands = [worker] * options.workers + [sender]
        self._running: list[subprocess.Popen[bytes]] = []
        self._guard = Guard()
        self._continue_at: dict[int, float] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Create the tables, then run the processes during the block."""
        self.run_to_end("benchmarks.workflows.prepare", str(self._lease_duration))
        try:
            self._running = [self._start(command) for command in self._commands]
            yield
            self._end()
        finally:
            for process in self._running:
                _kill(process)
            self._guard.close()

    def tend(self) -> None:
        """Continue processes that were stopped for long enough, and replace those that ended."""
        for number, process in enumerate(self._running):
            if process.poll() is not None:
                _kill(process)
                self._running[number] = self._start(self._commands[number])
            else:
                self._continue(process.pid)

    def run_to_end(self, *arguments: str, may_fail: bool = False) -> str:
        """Run a module without faults, pulljobs unbroken. Raise if it fails, unless `may_fail`."""
        environment = {**self._environment, "PROOF_BREAK": ""}
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            env=environment,
            cwd=BASE_DIR,
            capture_output=True,
            text=True,
        )
        if done.returncode and not may_fail:
            raise RuntimeError(f"{' '.join(arguments)} failed: {done.stderr}")
        return done.stdout

    def faults(self) -> Counter[str]:
        """Return the number of faults of each kind until now."""
        path = self.folder / FAULTS
        lines = path.read_text().splitlines() if path.exists() else []
        return Counter(line.split()[0] for line in lines)

    def _start(self, command: tuple[str, ...]) -> subprocess.Popen[bytes]:
        return self._guard.start(
            command,
            log=self.folder / "log",
            cwd=BASE_DIR,
            environment={**self._environment, "PROOF_SEED": self._seed},
        )

    def _continue(self, pid: int) -> None:
        now = time.monotonic()
        for each in _family(pid):
            if not _is_stopped(each):
                continue
            length = self._lease_duration * random.uniform(*STOPPED_LEASES)
            if now >= self._continue_at.setdefault(each.pid, now + length):
                del self._continue_at[each.pid]
                os.kill(each.pid, signal.SIGCONT)

    def _end(self) -> None:
        *workers, sender = self._running
        _kill(sender)
        for worker in workers:
            with suppress(ProcessLookupError):  # A process may be stopped since the last fault.
                os.killpg(worker.pid, signal.SIGCONT)
            worker.terminate()
        for worker in workers:
            worker.wait(STOP_SECONDS)


def _family(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    return []


def _is_stopped(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() == psutil.STATUS_STOPPED)
    return False


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_SECONDS)


class FaultLoop:
    """Loop that tends the processes until enough faults have happened and all work is done."""

    def __init__(
        self, server: OwnServer, processes: ProofProcesses, options: argparse.Namespace
    ) -> None:
        self._server, self._processes = server, processes
        self._times = options.times
        self._seen: Any = None
        self._moved_at = time.monotonic()

    def inject_faults(self) -> None:
        """Tend the processes until the wanted number of faults has happened, or nothing moves."""
        while self._processes.faults().total() < self._times and self._moves():
            self._processes.tend()
            time.sleep(LOOK_SECONDS)
        (self._processes.folder / ENOUGH).touch()

    def wait_for_the_rest(self) -> None:
        """Tend the processes until every run and batch has ended, or none makes progress."""
        self._moved_at = time.monotonic()
        while self._moves() and self._read(LEFT)[0]:
            self._processes.tend()
            time.sleep(LOOK_SECONDS)

    def _moves(self) -> bool:
        """Return True unless for a long time no fault happened and no run made progress."""
        seen = (self._processes.faults().total(), self._read(PROGRESS))
        if seen != self._seen:
            self._seen, self._moved_at = seen, time.monotonic()
        return time.monotonic() - self._moved_at < STALLED_SECONDS

    def _read(self, text: str) -> tuple[Any, ...]:
        with self._server.connect(autocommit=True) as connection:
            return connection.execute(text).fetchone() or ()


def _judge(
    server: OwnServer, processes: ProofProcesses, options: argparse.Namespace
) -> dict[str, Any]:
    with server.connect(autocommit=True) as connection:
        evidence = checker.read_evidence(connection, processes.folder)
        broken = checker.judge(evidence)
        verified = json.loads(
            processes.run_to_end("django", "pulljobs", "verify", "--json", may_fail=True)
        )
        planted = {} if broken else _plant(connection, processes.folder)
    return {
        "faults": dict(processes.faults()),
        "runs": len(evidence.runs),
        "calls": len(evidence.calls),
        "batches": len(evidence.batches),
        "broken": broken,
        "verify": verified["ok"],
        "finds planted": planted,
        "clean": not broken and verified["ok"] and all(planted.values()) and bool(planted),
    }


def _plant(connection: psycopg.Connection[Any], folder: Path) -> dict[str, bool]:
    """Plant a violation of each rule. Return for each rule if the checker reports it."""
    for plant in planting.PLANTS.values():
        plant(connection, folder)
    broken = checker.judge(checker.read_evidence(connection, folder))
    return {rule: rule in broken for rule in planting.PLANTS}


def _lines(report: dict[str, Any]) -> Iterator[str]:
    for name, value in report.items():
        if name != "clean":
            yield f"{name}: {value}"
    yield "clean" if report["clean"] else "NOT CLEAN"
