"""`runpullworker` in processes that a test starts, signals and kills."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.db import connections

from example_project.state import BASE_DIR
from pulljobs.models import ArchivedJob, Channel, Consumer, Job, Lease, Node
from pulljobs.publishing import Receipt, publish_many
from tests.factories import ConsumerFactory
from tests.sessions import PATIENCE_SECONDS, query, wait_until
from tests.worker.history import FILE, Line, read_lines


class Worker:
    def __init__(self, stage: "Stage", *flags: str, **environment: str) -> None:
        self.output = stage.directory / f"worker-{len(stage.workers)}.log"
        command = [sys.executable, "-m", "django", "runpullworker", *flags]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=BASE_DIR,
                env={**os.environ, **stage.environment, **environment},
                **{"stdout": output, "stderr": output, "start_new_session": True, **stage.popen},
            )
        stage.workers.append(self)

    def ready(self) -> "Worker":
        """Wait until a child process has registered itself as a node. Return this worker."""
        wait_until(lambda: bool(self._nodes()) or self.process.poll() is not None)
        assert self.process.poll() is None, self.log
        return self

    @property
    def child(self) -> int:
        """Pid of the newest living child, or 0 while there is none."""
        return next(reversed(self._nodes()), 0)

    def _nodes(self) -> list[int]:
        names = Node.objects.filter(stopped_at=None).order_by("started_at")
        pids = [int(name.rpartition(":")[2]) for name in names.values_list("name", flat=True)]
        return [pid for pid in pids if self._is_mine(pid)]

    def _is_mine(self, pid: int) -> bool:
        try:
            return os.getpgid(pid) == self.process.pid
        except ProcessLookupError:
            return False

    def signal(self, number: int = signal.SIGTERM) -> float:
        """Send a signal to the supervisor. Return the time of the monotonic clock after it."""
        self.process.send_signal(number)
        return time.monotonic()

    def ended(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Wait for the end of the worker. Return its exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there after {seconds} s: {self.log}") from None

    def pause(self, seconds: float) -> None:
        """Pause all processes of the worker, as Docker pauses a container.

        The supervisor continues first, and looks at its children while they are still silent.
        """
        os.killpg(self.process.pid, signal.SIGSTOP)
        until = time.monotonic() + seconds
        wait_until(lambda: time.monotonic() > until)
        waits = self._waits
        self.signal(signal.SIGCONT)
        wait_until(lambda: self._waits >= waits + 2)  # The first goes on with an older wait.
        os.killpg(self.process.pid, signal.SIGCONT)

    @property
    def _waits(self) -> int:
        """Number of times that the supervisor has slept: its voluntary context switches."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])

    def stop(self) -> int:
        self.signal()
        return self.ended()

    @property
    def log(self) -> str:
        return self.output.read_text()

    def kill_all(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        sys.stdout.write(self.log)  # pytest shows it if the test fails.


class Stage:
    """Consumer, its workers, and the history of its handlers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.history_file = directory / "history"
        self.gate = directory / "gate"
        self.workers: list[Worker] = []
        self.popen: dict[str, Any] = {}
        """Arguments with which workers are started, in place of the usual ones of `Popen`."""
        self.environment = {
            "DJANGO_SETTINGS_MODULE": "tests.worker.settings",
            "WORKER_DATABASE": str(connections["default"].settings_dict["NAME"]),
            FILE: str(self.history_file),
        }

    def consumer(self, **fields: Any) -> Consumer:
        channel, _created = Channel.objects.get_or_create(name="script")
        return ConsumerFactory.create(channel=channel, name="plain", **fields)

    def publish(self, count: int = 1, **script: Any) -> list[int]:
        receipts: list[Receipt] = publish_many("script", [script] * count)
        return [job for receipt in receipts for job in receipt.job_ids]

    def until_gate(self, count: int = 1, **script: Any) -> list[int]:
        """Publish jobs that run until the test calls `open_gate`. Return their ids."""
        return self.publish(count, until=str(self.gate), **script)

    def open_gate(self) -> None:
        self.gate.touch()

    def worker(self, *flags: str, **environment: str) -> Worker:
        return Worker(self, *flags, **environment)

    def warm_worker(self, *flags: str) -> Worker:
        """Start a worker that knows its handler to be quick, so that it claims jobs ahead."""
        worker = self.worker(*flags)
        self.publish(20, quiet=True)
        wait_until(lambda: ArchivedJob.objects.count() == 20)
        query("DELETE FROM pulljobs_archived_job")
        return worker

    def history(self, event: str) -> list[Line]:
        return [line for line in read_lines(self.history_file) if line.event == event]

    def wait_for(self, event: str, count: int = 1) -> list[Line]:
        wait_until(lambda: len(self.history(event)) >= count)
        return self.history(event)

    def runs(self) -> Counter[int]:
        return Counter(line.job for line in self.history("started"))

    def end(self) -> None:
        for worker in self.workers:
            worker.kill_all()
        wait_until(is_alone)


def is_alone() -> bool:
    """Return True once all other sessions have ended, so that the database can be dropped."""
    others = (
        "SELECT FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    return not query(others)


def in_flight() -> int:
    return Job.objects.filter(state="INFLIGHT").count()


def renewed(times: int) -> set[int]:
    """Return the jobs whose leases were renewed at least that many times."""
    leases = Lease.objects.filter(renewals__gte=times).values_list("job_ids", flat=True)
    return {job for jobs in leases for job in jobs}
