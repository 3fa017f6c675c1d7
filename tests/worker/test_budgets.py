"""Time limits and kills: the handler is notified, and its outcome is discarded."""

import time
from datetime import timedelta

import pytest

from pulljobs import jobs, operating
from pulljobs.models import ArchivedJob, Channel, Job, Node
from pulljobs.publishing import publish
from tests.factories import ConsumerFactory
from tests.sessions import SLACK, wait_until
from tests.worker.processes import Stage

pytestmark = pytest.mark.processes
SECOND = timedelta(seconds=1)
LONG = timedelta(minutes=10)
"""Lease duration with the first renewal after minutes."""


def time_of(stage: Stage, event: str) -> float:
    return stage.wait_for(event)[0].at


def awaited(stage: Stage, **fields: object) -> int:
    """Create the consumer of the async handler, and publish a job of ten minutes. Return its id."""
    channel = Channel.objects.create(name="awaited")
    ConsumerFactory.create(channel=channel, name="plain", **fields)
    return publish("awaited", {"seconds": 600}).job_ids[0]


@pytest.mark.own_session
def test_a_kill_reaches_a_thread_within_a_second(stage: Stage) -> None:
    """A kill reaches a running thread within a second, and not only at the renewal of its lease."""
    stage.consumer(lease_duration=LONG)
    [job] = stage.until_gate(heed=True)
    worker = stage.worker("--concurrency", "1")
    stage.wait_for("started")
    asked = time.monotonic()
    assert operating.kill([job], by="Ada").done == [job]
    assert time_of(stage, "lost") - asked < 1 + SLACK
    view = jobs.get(job)
    assert (view.state, view.reason, view.error) == ("DEAD", "killed", "killed by Ada")
    [again] = stage.publish()
    wait_until(lambda: jobs.get(again).state == "DELIVERED")
    assert Node.objects.count() == 1, "the handler has ended by itself"
    assert jobs.get(job) == view
    assert worker.stop() == 0


@pytest.mark.own_session
def test_a_kill_reaches_an_async_handler_within_a_second(stage: Stage) -> None:
    job = awaited(stage, lease_duration=LONG)
    worker = stage.worker()
    stage.wait_for("started")
    asked = time.monotonic()
    operating.kill([job], by="Ada")
    assert time_of(stage, "cancelled") - asked < 1 + SLACK
    assert jobs.get(job).error == "killed by Ada"
    assert ArchivedJob.objects.filter(job_id=job).count() == 1
    assert worker.stop() == 0


@pytest.mark.own_session
def test_a_kill_ends_a_process_whose_only_thread_does_not_react(stage: Stage) -> None:
    stage.consumer(lease_duration=LONG)
    [job] = stage.until_gate()
    worker = stage.worker("--concurrency", "1")
    [running] = stage.wait_for("started")
    operating.kill([job], by="Ada")
    wait_until(lambda: Node.objects.filter(stopped_at__isnull=False).exists())
    [again] = stage.publish()
    wait_until(lambda: jobs.get(again).state == "DELIVERED")
    assert running.pid not in {line.pid for line in stage.history("ended")}
    assert jobs.get(job).error == "killed by Ada"
    assert worker.stop() == 0


def test_a_thread_over_its_time_limit_sees_its_job_lost_and_its_result_is_discarded(
    stage: Stage,
) -> None:
    """The job is retried, whether its handler reacts to `job.lost` or returns much later."""
    stage.consumer(retry_strategy="constant:60")
    [heeds], [goes_on] = stage.until_gate(heed=True), stage.until_gate()
    worker = stage.worker("--handler-timeout", "0.5")
    assert [line.job for line in stage.wait_for("lost")] == [heeds]
    wait_until(lambda: jobs.get(heeds).retry_count == jobs.get(goes_on).retry_count == 1)
    stage.open_gate()
    stage.wait_for("lost", 2)
    for job in (heeds, goes_on):
        view = jobs.get(job)
        assert (view.state, view.retry_count) == ("QUEUED", 1)
        assert "over its timeout" in (view.error or "")
    assert "over its timeout" in worker.log
    assert worker.stop() == 0


def test_an_async_handler_over_its_time_limit_is_cancelled(stage: Stage) -> None:
    job = awaited(stage, max_retries=0)
    worker = stage.worker("--handler-timeout", "0.5")
    stage.wait_for("cancelled")
    wait_until(lambda: jobs.get(job).state == "DEAD")
    assert jobs.get(job).reason == "timed_out"
    assert worker.stop() == 0


def test_a_process_whose_only_thread_is_over_its_time_limit_is_replaced(stage: Stage) -> None:
    """The process is replaced, as its only thread is stuck. The next one does the waiting jobs."""
    stage.consumer(max_retries=0)
    [job] = stage.until_gate()
    others = stage.publish(5)
    worker = stage.worker("--concurrency", "1", "--handler-timeout", "3")
    wait_until(lambda: Job.objects.count() == 1 and jobs.get(job).state == "DEAD")
    assert jobs.get(job).reason == "timed_out"
    rows = ArchivedJob.objects.filter(job_id__in=others)
    assert set(rows.values_list("state", "retry_count", "deliveries")) == {("DELIVERED", 0, 1)}
    assert len({line.pid for line in stage.history("started")}) == 2
    assert worker.stop() == 0


def test_lease_is_renewed_while_the_handler_has_time_and_never_past_its_hard_end(
    stage: Stage,
) -> None:
    stage.consumer(lease_duration=3 * SECOND, retry_strategy="constant:60")
    stage.environment |= {"WORKER_MAX_LEASE": "3"}
    [job] = stage.until_gate(heed=True)
    worker = stage.worker("--handler-timeout", "5")
    [started] = stage.wait_for("started")
    wait_until(lambda: jobs.get(job).retry_count == 1)
    assert 4 < time_of(stage, "lost") - started.at < 5.5 + SLACK
    assert "over its timeout" in (jobs.get(job).error or ""), (
        "it was settled before the lease expired"
    )
    assert worker.stop() == 0
