"""The processes that a director starts, and what it does to them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from benchmarks.faults.history import CONTINUED, KILLED, STOPPED, Line, process_of
from benchmarks.faults.proxy import SOCKET
from benchmarks.faults.roles import clock
from benchmarks.faults.server import wait_for
from example_project.state import BASE_DIR

ROLES: Final = "benchmarks.faults.roles"
SETTINGS: Final = "benchmarks.faults.settings"


class Cast:
    """All processes of one run; `directory` holds their histories, outputs and clocks."""

    def __init__(
        self,
        directory: Path,
        host: Path,
        *,
        lease_duration: float,
        broken: str = "",
        older: Path | None = None,
    ) -> None:
        self.directory, self.history = directory, directory / "history"
        self.enough, self.over = directory / "enough", directory / "over"
        """Files that tell publishers without a number of jobs, and claimers, to end."""
        self.history.mkdir()
        self.lease_duration, self.older = lease_duration, older
        self.lines: list[Line] = []
        """What was done to the processes, in the terms of the histories."""
        self.started: list[Process] = []
        self.environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": SETTINGS,
            "FAULTS_HISTORY": str(self.history),
            "FAULTS_HOST": str(host),
            "FAULTS_LEASE": str(lease_duration),
            "FAULTS_BREAK": broken,
        }

    def prepare(self, *, exclusive: bool) -> None:
        how = {"lease_duration": self.lease_duration, "exclusive": exclusive}
        done = self.to_its_end(f"{ROLES}.prepare", json.dumps(how))
        if done.returncode:
            raise RuntimeError(f"The database could not be prepared: {done.stderr}")

    def proxy(self, server: Path) -> "Process":
        """Whatever is started from now on goes through it."""
        self.environment["FAULTS_HOST"] = str(self.directory)
        made = self.start("proxy", "benchmarks.faults.proxy", str(self.directory), str(server))
        wait_for((self.directory / SOCKET).exists, "the proxy")
        return made

    def worker(self, *flags: str) -> "Process":
        followed = self.directory / f"clock-{len(self.started)}"
        clock.make(followed)
        is_turn = sum(one.role == "worker" for one in self.started) % 2 == 0
        command = ("django", "runpullworker", "--verbosity", "0", *flags)
        return self.start("worker", *command, older=is_turn, FAULTS_CLOCK=str(followed))

    def publisher(self, *, older: bool = False, **script: object) -> "Process":
        script["until"] = str(self.enough)
        return self.start("publisher", f"{ROLES}.publisher", json.dumps(script), older=older)

    def claimer(self) -> "Process":
        return self.start("claimer", f"{ROLES}.claimer", str(self.over))

    def start(self, role: str, *arguments: str, older: bool = False, **given: str) -> "Process":
        """Of the older release, if that is asked for and there is one."""
        tree = self.older if older and self.older else BASE_DIR
        self.started.append(Process(self, role, arguments, given, tree))
        return self.started[-1]

    def to_its_end(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A process of no role, which leaves no history."""
        environment = {**self.environment, "FAULTS_BREAK": ""}
        del environment["FAULTS_HISTORY"]
        return subprocess.run(
            [sys.executable, "-m", *arguments],
            env=environment,
            cwd=BASE_DIR,
            capture_output=True,
            text=True,
        )

    def of(self, role: str) -> list["Process"]:
        """Those that live."""
        return [one for one in self.started if one.role == role and one.is_alive()]

    def note(self, event: str, pids: Sequence[int], since: float) -> None:
        at = time.monotonic()
        self.lines += [Line(event, 0, "-", pid, since, at) for pid in pids]

    def deserters(self) -> list[str]:
        """A sentence for every process that is gone and was not killed."""
        killed = {line.process for line in self.lines if line.event == KILLED}
        expected = {pid for one in self.started for pid in one.pids() if one.is_alive()} | killed
        wrote = {process_of(file): file.name for file in self.history.iterdir()}
        ended = {one.popen.pid for one in self.started if one.popen.returncode == 0}
        return [
            f"{name} ended, and nobody had told it to"
            for pid, name in wrote.items()
            if pid not in expected | ended
        ]

    def idle_releases(self) -> list[str]:
        """A sentence where an older release was asked for, and only one of the two did jobs."""
        workers = [one for one in self.started if one.role == "worker"]
        trees = {one.tree for one in workers}
        busy = {one.tree for one in workers if one.at_work() or one.has_worked}
        return [f"no worker of {tree} took a job" for tree in trees - busy]

    def end(self) -> None:
        """Whatever is left."""
        for process in self.started:
            process.kill_all()


class Process:
    """One that was started; a worker has children in the same process group."""

    def __init__(
        self, cast: Cast, role: str, arguments: Sequence[str], given: dict[str, str], tree: Path
    ) -> None:
        self.cast, self.role, self.tree = cast, role, tree
        self.clock = Path(given.get("FAULTS_CLOCK", ""))
        self.has_worked = False
        """It was seen at it; those at work are dead by now, maybe."""
        self.output = cast.directory / f"{role}-{len(cast.started)}.log"
        with self.output.open("wb") as output:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=tree,
                env={**cast.environment, **_path(tree), "FAULTS_ROLE": role, **given},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def is_alive(self) -> bool:
        return self.popen.poll() is None

    def at_work(self) -> list[int]:
        """Those that claimed or published something, and live; a supervisor does neither."""
        files = self.cast.history.glob(f"{self.role}-*")
        pids = [pid for file in files if self._is_ours(pid := process_of(file))]
        self.has_worked = self.has_worked or bool(pids)
        return [pid for pid in pids if pid != self.popen.pid] or pids

    def pids(self) -> list[int]:
        return sorted({self.popen.pid, *self.at_work()})

    def kill(self, pids: Sequence[int]) -> None:
        """One of them, or with the first process all."""
        since = time.monotonic()
        for pid in pids:
            self._send(pid, signal.SIGKILL)
        if self.popen.pid in pids:
            begun = self.at_work()
            self.kill_all()
            pids = sorted({*pids, *begun, *self.at_work()})
        self.cast.note(KILLED, pids, since)

    def kill_all(self) -> None:
        self._send_all(signal.SIGKILL)
        self.popen.wait()

    def stop(self, pids: Sequence[int], seconds: float) -> None:
        """Frozen for so long."""
        since = time.monotonic()
        for pid in pids:
            self._send(pid, signal.SIGSTOP)
        self.cast.note(STOPPED, pids, since)
        time.sleep(seconds)
        since = time.monotonic()
        for pid in pids:
            self._send(pid, signal.SIGCONT)
        self.cast.note(CONTINUED, pids, since)

    def end(self, seconds: float) -> int | None:
        """Asked to; its exit code, None if it does not end."""
        self.popen.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            return self.popen.wait(seconds)
        return None

    def _is_ours(self, pid: int) -> bool:
        with suppress(ProcessLookupError):
            return os.getpgid(pid) == self.popen.pid and _is_no_zombie(pid)
        return False

    def _send(self, pid: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    def _send_all(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, number)


def _path(tree: Path) -> dict[str, str]:
    """An older release finds nothing of ours."""
    if tree == BASE_DIR:
        return {}
    return {"PYTHONPATH": os.pathsep.join([str(tree), str(Path(__file__).with_name("alone"))])}


def _is_no_zombie(pid: int) -> bool:
    """Where the system tells; elsewhere one that is hit twice counts twice."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
