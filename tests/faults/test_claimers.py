"""Many processes claim from one queue while leases end: by the outside history all is in order."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection

from example_project.state import BASE_DIR
from pulljobs.models import ArchivedJob, Consumer, Job
from pulljobs.publishing import publish_many
from tests.factories import ConsumerFactory
from tests.faults.history import ANSWERED, CLAIMED, LOST, RENEWED, faults, read, shares
from tests.sessions import wait_until
from tests.worker.processes import is_alone

pytestmark = [pytest.mark.processes, pytest.mark.slow]
JOBS = int(os.environ.get("PULLJOBS_TEST_JOBS") or 20_000)
PROCESSES = 8
LEASE = 1.0
UNLIMITED = 10_000


class Claimers:
    """So many processes that begin together."""

    def __init__(self, directory: Path, consumer: Consumer, count: int) -> None:
        self.history, self.go = directory / "history", directory / "go"
        command = [sys.executable, "-m", "tests.faults.claimer"]
        arguments = [str(consumer.pk), str(LEASE), str(self.history), str(self.go)]
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.worker.settings",
            "WORKER_DATABASE": str(connection.settings_dict["NAME"]),
        }
        self.processes = [
            subprocess.Popen(command + arguments, cwd=BASE_DIR, env=environment)
            for _ in range(count)
        ]

    def begin(self) -> None:
        wait_until(lambda: len(list(self.go.parent.glob("go-*"))) == len(self.processes))
        self.go.touch()

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        wait_until(is_alone)


@pytest.fixture
def consumer(transactional_db: None) -> Consumer:
    return ConsumerFactory.create(
        lease=timedelta(seconds=LEASE), max_retries=UNLIMITED, max_deliveries=UNLIMITED
    )


@pytest.fixture
def claimers(tmp_path: Path, consumer: Consumer) -> Iterator[Claimers]:
    """One more than are counted: it is killed on the way."""
    made = Claimers(tmp_path, consumer, PROCESSES + 1)
    yield made
    made.end()


def test_every_job_is_settled_once_under_one_lease_at_a_time(
    consumer: Consumer, claimers: Claimers
) -> None:
    publish_many(consumer.channel.name, [b"payload"] * JOBS)
    claimers.begin()
    wait_until(lambda: ArchivedJob.objects.count() > JOBS // 10)
    killed = claimers.processes.pop()
    killed.kill()
    killed.wait()
    for process in claimers.processes:
        assert process.wait(JOBS / 200) == 0
    assert not Job.objects.exists()
    archived = list(ArchivedJob.objects.values_list("job_id", "state"))
    assert len(archived) == len(set(archived)) == JOBS
    assert {state for _job, state in archived} == {"DELIVERED"}
    lines = read(claimers.history)
    assert faults(lines) == []
    assert {line.job for line in lines} >= {job for job, _state in archived}
    share = shares(lines)
    assert all(share[process.pid] >= 0.05 for process in claimers.processes), share
    happened = Counter((line.event, line.said == LOST) for line in lines)
    assert happened[ANSWERED, True] > 0, "some were late"
    assert happened[RENEWED, False] > 0, "some were kept"
    assert happened[CLAIMED, False] > JOBS, "some were claimed again"
