"""`runpullworker --reload`: a changed file restarts the worker and harms no job."""

import os
import signal
import sys
from pathlib import Path
from typing import Final

import pytest

from pulljobs.models import ArchivedJob, Job
from tests.sessions import wait_until
from tests.worker.processes import Stage, Worker, in_flight

pytestmark = pytest.mark.processes
PATIENCE: Final = 90
HANDLER: Final = """
import time
from pathlib import Path
from pulljobs.handlers import ClaimedJob, handler

@handler(channel="script", consumer="plain")
def plain(job: ClaimedJob) -> str:
    until = job.json().get("until")
    Path({started!r}).touch()
    while until and not Path(until).exists():
        if job.stopping:
            Path({started!r} + "-stopping").touch()
        time.sleep(0.01)
    return "{word}"
"""


class ReloadedShop:
    """An app whose handler is edited while it runs."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.started = stage, stage.directory / "started"
        self._code = stage.directory / "reloaded_shop" / "pull_handlers.py"
        self._code.parent.mkdir()
        (self._code.parent / "__init__.py").touch()

    def write(self, text: str) -> None:
        self._save(HANDLER.format(started=str(self.started), word=text))

    def break_code(self) -> None:
        self._save("no python")

    def worker(self, *flags: str) -> Worker:
        path = os.pathsep.join([str(self.stage.directory), *sys.path])
        return self.stage.worker("--reload", *flags, WORKER_APPS="reloaded_shop", PYTHONPATH=path)

    def _save(self, text: str) -> None:
        new = self._code.with_suffix(".new")
        new.write_text(text)
        new.replace(self._code)


def results() -> list[str]:
    return [
        str(result)
        for result in ArchivedJob.objects.order_by("id").values_list("result", flat=True)
    ]


def processes_of(worker: Worker) -> list[int]:
    """Return the pids of all processes in the session of a worker but the first process."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [pid for pid in pids if pid != worker.process.pid and _is_of(pid, worker)]


def _is_of(pid: int, worker: Worker) -> bool:
    try:
        return os.getsid(pid) == worker.process.pid
    except ProcessLookupError:
        return False


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at /proc")
def test_change_restarts_the_worker_and_charges_nothing(stage: Stage) -> None:
    """The old code ends its running job, the new code does the waiting jobs."""
    stage.consumer()
    shop = ReloadedShop(stage)
    shop.write("old")
    worker = shop.worker("--concurrency=1", "--graceful-timeout=60")
    stage.publish()
    wait_until(lambda: results() == ["old"], PATIENCE)
    shop.started.unlink()
    running = stage.until_gate()
    wait_until(shop.started.exists, PATIENCE)
    waiting = stage.publish(3)
    shop.write("new")
    wait_until(shop.started.with_name("started-stopping").exists, PATIENCE)
    wait_until(lambda: in_flight() == 1, PATIENCE)  # The other claimed jobs are released.
    assert list(Job.objects.filter(id__in=waiting).values_list("deliveries", flat=True)) == [0] * 3
    stage.open_gate()
    wait_until(lambda: len(results()) == 5, PATIENCE)
    assert ArchivedJob.objects.get(job_id=running[0]).result == "old"
    assert results() == ["old", "old", "new", "new", "new"]
    charged = ArchivedJob.objects.values_list("retry_count", "deliveries").distinct()
    assert list(charged) == [(0, 1)]

    shop.break_code()
    wait_until(lambda: "starts again after a change" in worker.log, PATIENCE)
    assert worker.process.poll() is None
    shop.write("mended")
    stage.publish()
    wait_until(lambda: results()[-1] == "mended", PATIENCE)
    worker.signal(signal.SIGUSR1)
    wait_until(lambda: "watchdog: " in worker.log, PATIENCE)
    worker.signal(signal.SIGINT)
    assert worker.ended(PATIENCE) == 0
    wait_until(lambda: not processes_of(worker), PATIENCE)


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at /proc")
def test_the_worker_ends_with_the_process_that_watches_it(stage: Stage) -> None:
    stage.consumer()
    shop = ReloadedShop(stage)
    shop.write("old")
    worker = shop.worker()
    stage.publish()
    wait_until(lambda: results() == ["old"], PATIENCE)
    assert processes_of(worker)
    worker.process.kill()
    wait_until(lambda: not processes_of(worker), PATIENCE)


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at /proc")
def test_a_reloaded_worker_that_nohup_started_outlives_its_terminal(stage: Stage) -> None:
    stage.consumer()
    shop = ReloadedShop(stage)
    shop.write("old")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        worker = shop.worker()
    finally:
        signal.signal(signal.SIGHUP, before)
    stage.publish()
    wait_until(lambda: results() == ["old"], PATIENCE)
    worker.signal(signal.SIGHUP)
    worker.signal(signal.SIGUSR1)  # Is handled after the first.
    wait_until(lambda: "watchdog: " in worker.log, PATIENCE)
    worker.signal(signal.SIGTERM)
    assert worker.ended(PATIENCE) == 0
    assert "watchdog: " in worker.log
