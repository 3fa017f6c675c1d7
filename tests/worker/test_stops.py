"""Stops of workers under full load, PULLJOBS_TEST_STOPS times."""

import os
import time

import pytest

from pulljobs import pulling
from pulljobs.engine import outcomes
from pulljobs.models import ArchivedJob, Job
from tests.factories import claimed
from tests.sessions import SLACK, pass_time, wait_until
from tests.worker.processes import Stage, in_flight

pytestmark = pytest.mark.processes
STOPS = int(os.environ.get("PULLJOBS_TEST_STOPS", "2"))
TIMEOUT = 1
FLAGS = ("--graceful-timeout", str(TIMEOUT), "--concurrency", "4", "--max-fetch-interval", "600")


@pytest.mark.parametrize("number", range(STOPS))
def test_a_stop_under_saturation_is_in_time_and_charges_nothing(stage: Stage, number: int) -> None:
    """A busy worker stops in time and charges no job. Another one does the jobs that are left."""
    stage.consumer()
    every = {*stage.until_gate(), *stage.publish(50, seconds=0.2), *stage.publish(50)}
    stopped = stage.worker(*FLAGS, "--processes", "2")
    stage.wait_for("ended", 5 * (number % 8 + 1))
    wait_until(lambda: in_flight() > 8)
    asked = stopped.signal()
    assert stopped.ended() == 0
    assert time.monotonic() - asked < TIMEOUT + 1 + SLACK
    assert in_flight() <= 8, "all jobs that had not started were released"
    stage.open_gate()
    pass_time()
    worker = stage.worker("--reap-interval", "0.2")
    wait_until(lambda: not Job.objects.exists())
    assert set(ArchivedJob.objects.values_list("job_id", flat=True)) == every
    assert set(ArchivedJob.objects.values_list("state", "retry_count")) == {("DELIVERED", 0)}
    assert worker.stop() == 0


@pytest.mark.own_session
def test_an_idle_worker_claims_a_released_job_within_two_seconds(stage: Stage) -> None:
    """The release itself wakes the worker: it polls too rarely, and no message is published."""
    consumer = stage.consumer()
    released = set(stage.publish(3))
    held = claimed(consumer, 3)
    worker = stage.worker("--concurrency", "2", "--max-fetch-interval", "600").ready()
    stage.publish(1)
    wait_until(lambda: ArchivedJob.objects.count() == 1)
    idle_at = time.monotonic() + 1  # by then it has looked again, as it does after it was woken
    wait_until(lambda: time.monotonic() > idle_at)
    at = time.monotonic()
    pulling.finish([outcomes.release(job) for job in held])
    wait_until(lambda: released <= set(stage.runs()))
    taken = [line.at for line in stage.history("started") if line.job in released]
    assert max(taken) - at < 2 + SLACK
    wait_until(lambda: ArchivedJob.objects.count() == 4)
    assert set(ArchivedJob.objects.values_list("retry_count", "deliveries")) == {(0, 1)}
    assert worker.stop() == 0
