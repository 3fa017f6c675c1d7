"""Async handlers in a worker: next to threads, in crashes and in stops."""

import os
import signal
import time
from datetime import timedelta
from typing import Any

import pytest

from pulljobs import jobs
from pulljobs.models import ArchivedJob, Channel, Consumer, Job, Lease
from pulljobs.publishing import publish_many
from tests.factories import ConsumerFactory
from tests.sessions import wait_until
from tests.worker.processes import Stage, in_flight, renewed

pytestmark = pytest.mark.processes


def awaiting(name: str = "awaited", **fields: object) -> Consumer:
    channel = Channel.objects.create(name=name)
    return ConsumerFactory.create(channel=channel, name="plain", **fields)


def publish(seconds: float, count: int = 1, **script: Any) -> list[int]:
    receipts = publish_many("awaited", [{"seconds": seconds, **script}] * count)
    return [receipt.job_ids[0] for receipt in receipts]


def test_many_async_handlers_run_at_once_and_do_not_wait_for_threads(stage: Stage) -> None:
    """Forty handlers end while the only thread is busy, and fifty more start after them."""
    awaiting()
    stage.consumer()
    stuck = stage.until_gate()
    stage.worker("--concurrency", "1", "--async-concurrency", "60")
    stage.wait_for("started")
    begun = time.monotonic()
    every = publish(1, 40)
    wait_until(lambda: ArchivedJob.objects.count() == 40)
    assert time.monotonic() - begun < 40  # One after the other they need more.
    assert len(set(every)) == 40
    publish(600, 50)
    wait_until(lambda: len(stage.history("started")) == 91)
    stage.open_gate()
    wait_until(lambda: jobs.get(stuck[0]).state == "DELIVERED")


def test_a_report_names_the_line_at_which_an_async_handler_waits(stage: Stage) -> None:
    awaiting()
    [job] = publish(600)
    worker = stage.worker()
    stage.wait_for("started")
    worker.signal(signal.SIGUSR1)
    wait_until(lambda: "held 1" in worker.log)
    [line] = [line for line in worker.log.splitlines() if f"job {job} of awaited/plain" in line]
    assert "tests/worker/app/pull_handlers.py:" in line


def test_async_jobs_in_flight_never_exceed_the_limit(stage: Stage) -> None:
    awaiting()
    publish(0.05, 100)
    worker = stage.worker(
        "--burst", "--concurrency", "8", "--max-held", "8", "--async-concurrency", "30"
    )
    samples: set[int] = set()
    while worker.process.poll() is None:
        samples.add(in_flight())
    assert worker.ended() == 0, worker.log
    assert max(samples) <= 8
    assert ArchivedJob.objects.count() == 100


@pytest.mark.own_session
def test_there_are_no_more_connections_than_running_handlers(stage: Stage) -> None:
    awaiting("stored")
    publish_many("stored", [b""] * 40)
    # By default the connections are replaced each second, so that a slow run uses more.
    worker = stage.worker("--burst", "--async-concurrency", "5", WORKER_CONN_MAX_AGE="600")
    assert worker.ended() == 0, worker.log
    used = set(ArchivedJob.objects.values_list("result", flat=True))
    assert ArchivedJob.objects.filter(state="DELIVERED").count() == 40
    assert 1 < len(used) <= 5


def make_quick(stage: Stage) -> None:
    """Let the worker measure short runs, so that it claims jobs ahead."""
    quick = publish(0, 20)
    wait_until(lambda: len(stage.history("ended")) == len(quick))


def test_a_stop_lets_async_handlers_end_and_releases_those_that_do_not(stage: Stage) -> None:
    """Handlers that do not end in time are cancelled. Their jobs are released, uncharged."""
    awaiting()
    worker = stage.worker("--graceful-timeout", "5", "--async-concurrency", "2")
    make_quick(stage)
    [short], [long] = publish(0, until=str(stage.gate)), publish(600)
    wait_until(lambda: {short, long} <= set(stage.runs()))
    waiting = publish(600, 3)
    wait_until(lambda: in_flight() >= 3)
    worker.signal()
    wait_until(lambda: in_flight() == 2)
    stage.open_gate()
    assert worker.ended() == 0
    assert jobs.get(short).state == "DELIVERED"
    for job in (long, *waiting):
        view = jobs.get(job)
        assert (view.state, view.retry_count, view.deliveries) == ("QUEUED", 0, 0)
    assert [line.job for line in stage.history("cancelled")] == [long]
    assert "lease" not in worker.log


@pytest.mark.parametrize("what", ["cleanup", "block"])
def test_a_stop_releases_handlers_that_take_long_to_end_as_well(stage: Stage, what: str) -> None:
    """The job is released uncharged, even if its handler does not react to the cancellation."""
    awaiting()
    [job] = publish(600, **{what: 600})
    worker = stage.worker("--graceful-timeout", "0.5")
    stage.wait_for("started")
    worker.signal()
    assert worker.ended() == 0
    view = jobs.get(job)
    assert (view.state, view.retry_count, view.deliveries) == ("QUEUED", 0, 0)
    assert not Lease.objects.exists()


def test_crash_is_charged_to_async_handlers_that_ran(stage: Stage) -> None:
    """A crash charges the jobs of async handlers that ran, and no job that only waited."""
    awaiting(retry_strategy="constant:60")
    worker = stage.worker("--async-concurrency", "1")
    make_quick(stage)
    [ran] = publish(600)
    wait_until(lambda: ran in stage.runs())
    [waited] = publish(600)
    wait_until(lambda: in_flight() == 2)
    worker.ready()
    os.kill(worker.child, signal.SIGKILL)
    wait_until(lambda: jobs.get(ran).retry_count == 1)
    assert Job.objects.get(id=ran).suspect
    assert jobs.get(waited).retry_count == 0


def test_a_job_that_blocks_the_loop_ends_dead_and_its_neighbours_are_delivered(
    stage: Stage,
) -> None:
    """A job that blocks the event loop ends DEAD. Its neighbours are released and run later."""
    awaiting(max_deliveries=2, retry_strategy="constant:0")
    [neighbour] = publish(0, until=str(stage.gate))
    worker = stage.worker("--liveness-timeout", "2", "--graceful-timeout", "0.5")
    stage.wait_for("started")
    [blocks] = publish(0, block=600)
    wait_until(lambda: jobs.get(blocks).retry_count == 1)
    stage.open_gate()
    wait_until(lambda: jobs.get(blocks).state == "DEAD")
    assert jobs.get(blocks).reason == "max_deliveries"
    assert stage.runs()[blocks] == 2
    wait_until(lambda: jobs.get(neighbour).state == "DELIVERED")
    assert (jobs.get(neighbour).retry_count, jobs.get(neighbour).deliveries) == (0, 1)
    assert f"Job {blocks} of awaited/plain blocks the event loop" in worker.log


def test_a_pause_of_all_processes_charges_no_job(stage: Stage) -> None:
    """A pause of all processes for longer than the liveness timeout charges no job."""
    awaiting()
    publish(0, 10, until=str(stage.gate))
    worker = stage.worker("--liveness-timeout", "2").ready()
    stage.wait_for("started", 10)
    child = worker.child
    for times in (1, 2):
        worker.pause(2.5)
        publish(0)
        stage.wait_for("ended", times)
    stage.open_gate()
    wait_until(lambda: not Job.objects.exists())
    assert set(stage.runs().values()) == {1}
    assert worker.child == child
    assert worker.stop() == 0


def test_failures_are_retried_and_end_dead_with_their_error(stage: Stage) -> None:
    """A job whose handler always raises is retried, and ends dead with the error of the handler."""
    awaiting(retry_strategy="constant:0.1", max_retries=2)
    [receipt] = publish_many("awaited", [{"minutes": 1}])
    stage.worker()
    [job] = receipt.job_ids
    wait_until(lambda: jobs.get(job).state == "DEAD")
    view = jobs.get(job)
    assert (view.retry_count, view.deliveries, view.reason) == (2, 3, "retries_exhausted")
    assert (view.error or "").startswith("KeyError: 'seconds'")


def test_lease_is_renewed_while_an_async_handler_waits(stage: Stage) -> None:
    """The lease is renewed until the handler ends. Reaping is off, in case the machine is slow."""
    awaiting(lease_duration=timedelta(seconds=2))
    [job] = publish(0, until=str(stage.gate))
    worker = stage.worker("--reap-interval", "600")
    wait_until(lambda: renewed(5) == {job})
    stage.open_gate()
    wait_until(lambda: jobs.get(job).state == "DELIVERED")
    assert stage.runs() == {job: 1}
    assert "Lost" not in worker.log
