"""The lake's commands as processes: on a cluster, without Java on PATH, watching."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest

from example_project.state import BASE_DIR
from pulljobs.engine import outcomes
from pulljobs.lake.models import LakeRun, Rollup
from pulljobs.lake.spark import failures, java
from pulljobs.management.subcommands import EXIT_PROBLEM
from pulljobs.models import Lease
from pulljobs.states import State
from pulljobs.storage import jobs
from tests.factories import USING, ConsumerFactory, claimed, published
from tests.lake.lakes import Cutter, assert_same, environment, files
from tests.lake.streams import states
from tests.sessions import wait_for_other_transactions, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
PATIENCE_SECONDS = 180
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


def settled(count: int) -> None:
    """Settle this many jobs, which the next export takes."""
    consumer = ConsumerFactory.create()
    published(consumer, count)
    jobs.finish(USING, [outcomes.deliver(held) for held in claimed(consumer, count)])
    wait_for_other_transactions()


@contextmanager
def lake_command(place: Path, *flags: str, **changed: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "manage.py", "pulljobs", "lake", *flags],
        cwd=BASE_DIR,
        env={**os.environ, **environment(), "LAKE": str(place), **changed},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def answer(process: "subprocess.Popen[str]") -> dict[str, Any]:
    output, error = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, error
    document: dict[str, Any] = json.loads(output)
    return document


class Cluster:
    """A standalone master and its workers, all on the loopback."""

    def __init__(self, directory: Path, workers: int) -> None:
        self._directory, self._stack = directory, ExitStack()
        self._environment = {**os.environ, "SPARK_NO_DAEMONIZE": "1"}
        java.use(self._environment)
        self._log = self._start("master", MASTER, "--webui-port", "0")
        wait_until(lambda: "Starting Spark master at" in self._log.read_text(), PATIENCE_SECONDS)
        self.url = self._log.read_text().partition("Starting Spark master at ")[2].split()[0]
        for number in range(workers):
            self._start(
                f"worker{number}", WORKER, "--webui-port", "0", "--cores", "1", "--memory", "600m",
                "--work-dir", str(directory / f"work{number}"), self.url,
            )  # fmt: skip
        wait_until(lambda: self._registered() == workers, PATIENCE_SECONDS)

    def end(self) -> None:
        self._stack.close()

    def _registered(self) -> int:
        return self._log.read_text().count("Registering worker")

    def _start(self, name: str, main: str, *flags: str) -> Path:
        log = self._directory / f"{name}.log"
        home = Path(pyspark.__file__).parent
        with log.open("wb") as output:
            process = subprocess.Popen(
                [home / "bin" / "spark-class", main, "--host", "127.0.0.1", "--port", "0", *flags],
                env=self._environment,
                stdout=output,
                stderr=output,
            )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return log


def test_an_export_that_is_killed_on_a_cluster_of_two_workers_is_ended_by_the_next(
    tmp_path: Path,
) -> None:
    """The export is killed in its write, while tasks run on the workers."""
    settled(1500)
    place = tmp_path / "lake"
    cluster = Cluster(tmp_path, workers=2)
    cutter = Cutter(place, cluster.url)
    try:
        assert cutter.cut("in the write") == signal.SIGKILL
        assert LakeRun.objects.get().state == LakeRun.State.OPEN
        assert cutter.cut("") == 0
    finally:
        cutter.end()
        cluster.end()
    assert LakeRun.objects.get().rows == {"archive": 1500, "messages": 1500}
    assert len(files(place, "archive")) == 1
    assert_same(place)


def test_a_query_whose_java_is_killed_gives_its_jobs_back(tmp_path: Path) -> None:
    consumer = ConsumerFactory.create()
    published(consumer, 5)
    flags = ("--channel", consumer.channel.name, "--consumer", consumer.name)
    handler = ("--handler", "tests.lake.handled:never_ends", "--master", "local[1]")
    with lake_command(tmp_path / "lake", "consume", *flags, *handler) as process:
        wait_until(lambda: states() == {State.INFLIGHT: 5}, PATIENCE_SECONDS)
        children = psutil.Process(process.pid).children(recursive=True)
        [java_process] = [child for child in children if child.name() == "java"]
        java_process.kill()
        _output, error = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == EXIT_PROBLEM
    assert error.splitlines()[-1] == f"CommandError: {failures.JVM_ENDED}"
    assert states() == {State.QUEUED: 5}
    assert not Lease.objects.exists()


def rolled_up() -> int:
    """Return the deliveries that all rollups of hours have."""
    return sum(Rollup.objects.filter(period="hour").values_list("delivered", flat=True))


def test_a_watch_follows_new_rows_until_a_signal_to_its_process_group(tmp_path: Path) -> None:
    place = tmp_path / "lake"
    flags = ("--every", "0.2", "--rollup-every", "0.2", "--master", "local[1]")
    with lake_command(place, "watch", *flags) as process:
        for rows in (5, 10):
            settled(5)
            wait_until(lambda rows=rows: rolled_up() == rows, PATIENCE_SECONDS)  # type: ignore[misc]  # mypy can't type a default
        os.killpg(process.pid, signal.SIGTERM)
        output, error = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, error
    assert output.count("export: 5 of archive, 5 of messages\n") == 2
    assert output.count("rollup: ") >= 2
    assert_same(place)


def exported() -> tuple[int, int]:
    """Return the numbers of exported settlements and messages, in all runs."""
    done = [run.rows for run in LakeRun.objects.filter(state="done")]
    return sum(rows["archive"] for rows in done), sum(rows["messages"] for rows in done)


def test_an_export_that_watches_goes_on_until_it_is_stopped(tmp_path: Path) -> None:
    place = tmp_path / "lake"
    with lake_command(place, "export", "--watch", "0.1", "--json") as process:
        for rows in (5, 10):
            settled(5)
            wait_until(lambda rows=rows: exported() == (rows, rows), PATIENCE_SECONDS)  # type: ignore[misc]  # mypy can't type a default
        process.send_signal(signal.SIGTERM)
        assert answer(process)["rows"] == {"archive": 10, "messages": 10}
    assert_same(place)
