"""The lake's commands as processes: on a cluster, without Java on PATH, watching."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.pipeline.cluster import serve_cluster
from example_project.state import BASE_DIR
from pulljobs.engine import outcomes
from pulljobs.lake.models import LakeRun, Rollup
from pulljobs.lake.spark import failures
from pulljobs.management.subcommands import EXIT_PROBLEM
from pulljobs.models import Lease
from pulljobs.states import State
from pulljobs.storage import jobs
from tests.factories import USING, ConsumerFactory, claimed, published
from tests.lake.lakes import Cutter, Place, assert_same, environment, files
from tests.lake.streams import states
from tests.lake.test_session import path_without_java
from tests.sessions import wait_for_other_transactions, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
PATIENCE_SECONDS = 180


def settled(count: int) -> None:
    """Settle this many jobs, which the next export takes."""
    consumer = ConsumerFactory.create()
    published(consumer, count)
    jobs.finish(USING, [outcomes.deliver(held) for held in claimed(consumer, count)])
    wait_for_other_transactions()


@contextmanager
def lake_command(*flags: str, **changed: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "manage.py", "pulljobs", "lake", *flags],
        cwd=BASE_DIR,
        env={**os.environ, **environment(), **changed},
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


def test_an_export_that_is_killed_on_a_cluster_of_two_workers_is_ended_by_the_next(
    place: Place, tmp_path: Path
) -> None:
    """The export is killed while tasks write on the workers. The next export finishes its run."""
    settled(1500)
    with serve_cluster(tmp_path, workers=2) as cluster:
        cutter = Cutter(cluster.url)
        try:
            assert cutter.cut("in the write") == signal.SIGKILL
            assert LakeRun.objects.get().state == LakeRun.State.OPEN
            assert cutter.cut("") == 0
        finally:
            cutter.end()
    assert LakeRun.objects.get().rows == {"archive": 1500, "messages": 1500}
    assert len(files(place, "archive")) == 1
    assert_same(place)


@contextmanager
def endless_query() -> Iterator["subprocess.Popen[str]"]:
    """Start `lake consume` with a handler that never ends, and wait until it holds five jobs."""
    consumer = ConsumerFactory.create()
    published(consumer, 5)
    flags = ("--channel", consumer.channel.name, "--consumer", consumer.name)
    handler = ("--handler", "tests.lake.handled:never_ends", "--master", "local[1]")
    with lake_command("consume", *flags, *handler, "--json") as process:
        wait_until(lambda: states() == {State.INFLIGHT: 5}, PATIENCE_SECONDS)
        yield process


def test_a_signal_to_the_process_group_of_a_query_gives_its_jobs_back() -> None:
    with endless_query() as process:
        os.killpg(process.pid, signal.SIGTERM)
        assert answer(process)["acked"] == 0
    assert states() == {State.QUEUED: 5}
    assert not Lease.objects.exists()


def test_a_query_whose_java_is_killed_gives_its_jobs_back() -> None:
    with endless_query() as process:
        children = psutil.Process(process.pid).children(recursive=True)
        [java_process] = [child for child in children if child.name() == "java"]
        java_process.kill()
        _output, error = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == EXIT_PROBLEM
    assert error.splitlines()[-1] == f"CommandError: {failures.JVM_ENDED}"
    assert states() == {State.QUEUED: 5}
    assert not Lease.objects.exists()


def rolled_up() -> int:
    """Return the sum of deliveries in all rollups of hours."""
    return sum(Rollup.objects.filter(period="hour").values_list("delivered", flat=True))


def test_a_watch_follows_new_rows_until_a_signal_to_its_process_group(
    place: Place, tmp_path: Path
) -> None:
    """`lake watch` exports and rolls up repeatedly, ends with status 0, and shows no Java warnings.

    It finds Java although PATH does not have it.
    """
    flags = ("--every", "0.2", "--rollup-every", "0.2", "--master", "local[1]")
    without_java = {"JAVA_HOME": "", "PATH": path_without_java(tmp_path / "bin")}
    with lake_command("watch", *flags, **without_java) as process:
        for rows in (5, 10):
            settled(5)
            wait_until(lambda rows=rows: rolled_up() == rows, PATIENCE_SECONDS)  # type: ignore[misc]  # mypy can't type a default
        os.killpg(process.pid, signal.SIGTERM)
        output, error = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, error
    assert "arning" not in error
    exports = re.findall(r"export: (\d+) of archive, (\d+) of messages\n", output)
    assert [sum(map(int, rows)) for rows in zip(*exports, strict=True)] == [10, 10]
    assert output.count("rollup: ") >= 2
    assert_same(place)


def exported() -> tuple[int, int]:
    """Return how many settlements and how many messages all export runs have exported."""
    done = [run.rows for run in LakeRun.objects.filter(state="done")]
    return sum(rows["archive"] for rows in done), sum(rows["messages"] for rows in done)


def test_an_export_that_watches_goes_on_until_it_is_stopped(place: Place) -> None:
    with lake_command("export", "--watch", "0.1", "--json") as process:
        for rows in (5, 10):
            settled(5)
            wait_until(lambda rows=rows: exported() == (rows, rows), PATIENCE_SECONDS)  # type: ignore[misc]  # mypy can't type a default
        process.send_signal(signal.SIGTERM)
        assert answer(process)["rows"] == {"archive": 10, "messages": 10}
    assert_same(place)
