"""A client of a Spark Connect server publishes, reads and streams without a JVM of its own."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from django.core.management import CommandError, call_command

from example_project.state import BASE_DIR
from pulljobs.lake.models import Rollup
from pulljobs.lake.spark import java
from pulljobs.models import ArchivedJob, Job, Lease
from pulljobs.states import State
from tests.factories import ConsumerFactory
from tests.lake.lakes import Place, assert_same, environment
from tests.lake.object_store import choose_port, is_listening
from tests.sessions import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
PATIENCE_SECONDS = 180
ROWS = 20


@pytest.fixture
def server(tmp_path: Path, python_of_workers: None) -> Iterator[str]:
    """URL of a Spark Connect server, started as the guide does."""
    port, given = choose_port(), {**os.environ, **environment()}
    java.use(given)
    script = Path(pyspark.__path__[0], "sbin", "start-connect-server.sh")
    conf = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.python.daemon.module": "pulljobs.lake.spark.daemon",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    flags = [flag for name, value in conf.items() for flag in ("--conf", f"{name}={value}")]
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [script, "--wait", "--master", "local[2]", *flags],
            cwd=BASE_DIR,
            env={**given, "PYSPARK_PYTHON": sys.executable, "SPARK_LOG_DIR": str(tmp_path)},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            wait_until(lambda: is_listening(port), PATIENCE_SECONDS)
            yield f"sc://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_a_server_reads_publishes_streams_and_keeps_the_lake(
    server: str, place: Place, tmp_path: Path
) -> None:
    consumer = ConsumerFactory.create()
    orders = {
        "url": server,
        "channel": consumer.channel.name,
        "consumer": consumer.name,
        "rows": ROWS,
        "folder": str(tmp_path),
    }
    ran = subprocess.run(
        [sys.executable, "-m", "tests.lake.connect_client", json.dumps(orders)],
        cwd=BASE_DIR,
        env={**os.environ, **environment()},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert f"jobs {ROWS}\nbatches 2\n" in ran.stdout
    assert "A client of Spark Connect cannot set spark.x.y: set it where" in ran.stdout
    assert set(ArchivedJob.objects.values_list("state", flat=True)) == {State.DELIVERED}
    assert "PastAllError: no" in ran.stdout
    deliveries = Counter(ArchivedJob.objects.values_list("deliveries", flat=True))
    assert deliveries == {1: ROWS, 2: ROWS}  # the query that failed counts, without its checkpoint
    assert not Job.objects.exists()
    assert not Lease.objects.exists()
    assert_same(place)
    assert sum(row.delivered for row in Rollup.objects.filter(period="hour")) == 2 * ROWS


@pytest.mark.parametrize(
    ("scheme", "what"), [("sc", "Spark Connect server"), ("spark", "Spark master")]
)
def test_a_server_that_is_not_there_is_one_clear_line(scheme: str, what: str) -> None:
    url = f"{scheme}://127.0.0.1:{choose_port()}"
    with pytest.raises(CommandError, match=f"There is no {what} at {url} ") as raised:
        call_command(
            *("pulljobs", "lake", "publish", "--channel", "c", "x.txt", "--publish-id", "x"),
            *("--remote", url),
        )
    assert "\n" not in str(raised.value)
