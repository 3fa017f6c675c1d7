"""Spark drivers that die between any two actions of Spark lose no job and repeat none.

Each life is a process of its own that is killed at its point, and keeps Spark's logs as Spark does:
offsets before a batch, commits after it, and a sink that knows its batches. Whole drivers die in
test_stream_drivers.
"""

import json
import multiprocessing
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pulljobs.models import ArchivedJob, Consumer, Job, Lease
from pulljobs.states import State
from pulljobs.storage import jobs
from pyspark_pulljobs import ownership
from pyspark_pulljobs.streaming import Offset
from tests.factories import USING, ConsumerFactory, claimed, published
from tests.lake.streams import Source, batch, job_ids, options, states
from tests.sessions import query

pytestmark = pytest.mark.django_db(transaction=True)

POINTS = ("planned", "logged", "read", "written", "committed", "acked", "claimed")
JOBS = 25


class Life:
    """Process that calls a stream's source and sink as Spark does, until killed or out of jobs."""

    def __init__(self, directory: Path, options: dict[str, str], death: str) -> None:
        self.directory, self.options, self.death = directory, options, death

    def live(self) -> None:
        source = Source(self.options)
        done = self.log("commits")
        number = max(done, default=-1)
        if done:
            source.at = self.log("offsets")[number]
        for planned in sorted(set(self.log("offsets")) - set(done)):
            self.run(source, planned, self.log("offsets")[planned])
            number = planned
        while True:
            source.reader.stream.ack(source.at["seq"])
            self.meet("acked", number)
            end = source.plan()
            if end == source.at:
                return
            number += 1
            self.meet("planned", number)
            self.write("offsets", number, end)
            self.meet("logged", number)
            self.run(source, number, end)

    def run(self, source: Source, number: int, end: Offset) -> None:
        rows = job_ids(source.rows(end))
        self.meet("read", number)
        if number not in self.log("sink"):
            self.write("sink", number, rows)
        self.meet("written", number)
        self.write("commits", number, True)
        self.meet("committed", number)
        source.at = end

    def meet(self, point: str, number: int) -> None:
        if f"{point}@{number}" == self.death:
            os.kill(os.getpid(), signal.SIGKILL)

    def log(self, name: str) -> dict[int, Any]:
        files = (self.directory / name).glob("*")
        return {int(file.name): json.loads(file.read_text()) for file in files}

    def write(self, name: str, number: int, content: object) -> None:
        (self.directory / name / str(number)).write_text(json.dumps(content))


@pytest.fixture
def consumer() -> Consumer:
    return ConsumerFactory.create()


@pytest.fixture
def life(tmp_path: Path, consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> Life:
    monkeypatch.setattr(ownership, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(ownership, "PATIENCE", timedelta(seconds=0.4))
    monkeypatch.setattr("pyspark_pulljobs.heartbeat.PATIENCE", timedelta(seconds=0.4))
    monkeypatch.setattr("pyspark_pulljobs.heartbeat.BEAT", timedelta(seconds=0.1))
    monkeypatch.setattr("pyspark_pulljobs.waiting.POLL", timedelta(seconds=0.05))
    for name in ("offsets", "commits", "sink"):
        (tmp_path / name).mkdir()
    return Life(tmp_path, options(consumer, maxRowsPerBatch=10), "")


def live(life: Life, death: str) -> None:
    life.death = death
    process = multiprocessing.get_context("fork").Process(target=life.live)
    process.start()
    process.join(300)
    assert process.exitcode == (-signal.SIGKILL if death else 0)


def sunk(life: Life) -> list[int]:
    return sorted(job for rows in life.log("sink").values() for job in rows)


@pytest.mark.parametrize("point", [f"{point}@1" for point in POINTS[:-1]] + ["planned@0"])
def test_a_driver_that_dies_loses_nothing_and_repeats_nothing(
    life: Life, consumer: Consumer, point: str
) -> None:
    made = published(consumer, JOBS)
    live(life, point)
    live(life, "")
    assert sunk(life) == made
    assert states() == {}
    assert not Lease.objects.exists()
    assert sorted(ArchivedJob.objects.values_list("job_id", flat=True)) == made
    assert {batch(seq).lost for seq in (1, 2, 3)} == {0}


def test_a_batch_that_was_never_logged_is_taken_over_without_its_checkpoint(
    life: Life, consumer: Consumer
) -> None:
    made = published(consumer, 12)
    live(life, "planned@0")
    assert states() == {State.INFLIGHT: 10, State.QUEUED: 2}
    live(life, "")
    assert sunk(life) == made
    assert set(ArchivedJob.objects.values_list("deliveries", "retry_count")) == {(2, 0), (1, 0)}


def test_a_lease_that_was_lost_in_the_outage_is_not_acked(life: Life, consumer: Consumer) -> None:
    made = published(consumer, 10)
    live(life, "read@0")
    query("UPDATE pulljobs_lease SET leased_until = now() - interval '1 s'")
    jobs.reap(USING, 10)
    taken = {claim.job_id for claim in claimed(consumer, 3)}
    live(life, "")
    assert sunk(life) == sorted({*made} - taken)
    assert (batch(1).acked, batch(1).lost) == (7, 3)
    assert set(Job.objects.values_list("id", flat=True)) == taken


def test_a_batch_that_kills_its_driver_each_time_ends_dead(life: Life, consumer: Consumer) -> None:
    Consumer.objects.update(max_deliveries=3)
    made = published(consumer, 2)
    for _attempt in range(3):
        live(life, "read@0")
    live(life, "")
    assert set(ArchivedJob.objects.values_list("job_id", "state", "reason")) == {
        (job, State.DEAD, "max_deliveries") for job in made
    }
