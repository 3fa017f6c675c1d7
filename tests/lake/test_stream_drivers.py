"""Whole Spark drivers are killed with their processes, and every job reaches the sink once.

PULLJOBS_TEST_STREAM=100000 tests all seven points with that many jobs. CI tests one point with
fewer jobs.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection, connections

from benchmarks.faults import checker, tables
from benchmarks.faults.checker import Case
from benchmarks.faults.history import PUBLISHED, Line
from example_project.state import BASE_DIR
from pulljobs.lake.models import StreamBatch
from pulljobs.models import Consumer, Job, Lease, Message
from tests.factories import ConsumerFactory, published
from tests.lake.streams import options

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

JOBS = int(os.environ.get("PULLJOBS_TEST_STREAM", "0"))
ALL = "claimed@1 reading@2 drained@3 written@4 acking@5 acked@6 claimed@8"
POINTS = ALL if JOBS else "written@2"
COUNT = JOBS or 600
BATCH = COUNT // 10 if JOBS else 200
PATIENCE = 900 if JOBS else 600
RULES = (checker.nothing_is_lost, checker.all_is_settled, checker.claims_settle_once)


class Drivers:
    """Spark drivers of one query, started one after another until one of them is not killed."""

    def __init__(self, directory: Path, consumer: Consumer, points: str) -> None:
        self.directory, self.killed = directory, 0
        (directory / "marks").mkdir()
        self.fate = {"points": points, "marks": str(directory / "marks")}
        self.source = options(consumer, maxRowsPerBatch=BATCH, partitions=2)
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, format: str, sink: dict[str, str]) -> None:
        while self._ended(format, sink) == -signal.SIGKILL:
            self.killed += 1

    def _ended(self, format: str, sink: dict[str, str]) -> int:
        given = {
            "format": format,
            "checkpoint": str(self.directory / "checkpoint"),
            "conf": {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"},
            "source": {**self.source, **self.fate},
            "sink": {**sink, **self.fate} if format == "dying" else sink,
        }
        with (self.directory / f"driver-{self.killed}.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.lake.stream_driver", json.dumps(given)],
                cwd=BASE_DIR,
                env={**os.environ, **environment()},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self.process.wait(PATIENCE)

    @property
    def log(self) -> str:
        return (self.directory / f"driver-{self.killed}.log").read_text()[-4_000:]


def environment() -> dict[str, str]:
    return {
        "DJANGO_SETTINGS_MODULE": "tests.worker.settings",
        "WORKER_DATABASE": str(connections["default"].settings_dict["NAME"]),
        "WORKER_APPS": "",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(BASE_DIR), os.environ.get("PYTHONPATH")])),
    }


@pytest.fixture
def consumer() -> Consumer:
    return ConsumerFactory.create()


@pytest.fixture
def drivers(tmp_path: Path, consumer: Consumer, python_of_workers: None) -> Iterator[Drivers]:
    made = Drivers(tmp_path, consumer, POINTS)
    yield made
    if made.process is not None and made.process.poll() is None:
        os.killpg(made.process.pid, signal.SIGKILL)


def check(jobs: list[int], drivers: Drivers) -> None:
    """Check that all kills happened and that every job was settled once."""
    assert drivers.process is not None
    assert drivers.process.returncode == 0, drivers.log
    assert {mark.name for mark in (drivers.directory / "marks").iterdir()} == set(POINTS.split())
    assert drivers.killed == len(POINTS.split())
    lines = [Line(PUBLISHED, job, "-", 0, 0.0, 0.0) for job in jobs]
    with psycopg.connect(**parameters()) as direct:
        case = Case(lines, tables.read_tables(direct))
    assert [fault for rule in RULES for fault in rule(case)] == []
    assert not Lease.objects.exists()
    assert set(StreamBatch.objects.values_list("state", "lost")) == {("acked", 0)}


def parameters() -> dict[str, Any]:
    known = ("host", "port", "dbname", "user", "password")
    return {k: v for k, v in connection.get_connection_params().items() if k in known}


def test_killed_drivers_bring_every_job_once_to_a_parquet_sink(
    drivers: Drivers, consumer: Consumer
) -> None:
    made = fill(consumer)
    drivers.run("parquet", {"path": str(drivers.directory / "sink")})
    check(made, drivers)
    import pyarrow.parquet as parquet

    log = drivers.directory / "sink" / "_spark_metadata"
    written = [
        json.loads(line)["path"]
        for file in log.iterdir()
        if file.name.isdecimal() or file.name.endswith(".compact")
        for line in file.read_text().splitlines()[1:]
    ]
    files = {path.removeprefix("file://") for path in written}
    rows = [job for file in files for job in parquet.read_table(file)["job_id"].to_pylist()]
    assert sorted(rows) == made


@pytest.mark.skipif(not JOBS, reason="PULLJOBS_TEST_STREAM is not set; the sink has tests in CI")
def test_killed_drivers_publish_every_job_once_to_our_own_sink(
    drivers: Drivers, consumer: Consumer
) -> None:
    made = fill(consumer)
    other = ConsumerFactory.create()
    drivers.run("dying", {"dsn": drivers.source["dsn"], "channel": other.channel.name})
    keys = Job.objects.filter(consumer=other).values_list("message_id", flat=True)
    copies = Message.objects.filter(id__in=keys).values_list("key", flat=True)
    assert sorted(int(key or 0) for key in copies) == made
    Job.objects.filter(consumer=other).delete()
    check(made, drivers)


def fill(consumer: Consumer) -> list[int]:
    return sorted(
        job
        for start in range(0, COUNT, 5_000)
        for job in published(consumer, min(5_000, COUNT - start))
    )
