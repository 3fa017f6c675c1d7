"""Number of jobs that a worker claims, and when."""

from datetime import timedelta

import pytest
from django.db.models.functions import Now

from pulljobs.models import ArchivedJob, Consumer, Job
from pulljobs.publishing import publish
from tests.sessions import wait_until
from tests.worker.processes import Stage

pytestmark = pytest.mark.processes


def test_pause_under_load_stops_claims_and_its_end_resumes_them(stage: Stage) -> None:
    """A pause stops claims while running jobs end and are settled. After it, claims go on."""
    consumer = stage.consumer()
    stage.publish(4000, seconds=0.02)
    worker = stage.worker("--concurrency", "4", "--max-held", "20")
    stage.wait_for("ended", 20)
    rows = Consumer.objects.filter(pk=consumer.pk)
    rows.update(paused_until=Now() + timedelta(hours=1))
    wait_until(lambda: not Job.objects.filter(state="INFLIGHT").exists())
    done = ArchivedJob.objects.count()
    assert 20 <= done < 4000
    started = len(stage.history("started"))
    assert started == done
    rows.update(paused_until=None)
    wait_until(lambda: len(stage.history("started")) > started)
    assert worker.stop() == 0


def test_full_claims_follow_each_other_at_once(stage: Stage) -> None:
    """The second claim of seven jobs follows at once, although polls are minutes apart."""
    stage.consumer()
    stage.publish(7)
    worker = stage.worker("--fetch-batch", "4", "--max-fetch-interval", "600")
    stage.wait_for("ended", 7)
    assert worker.stop() == 0


def test_three_workers_share_a_thousand_jobs_and_each_runs_once(stage: Stage) -> None:
    stage.consumer()
    every = stage.publish(1000)
    workers = [stage.worker("--burst", "--fetch-batch", "20") for _number in range(3)]
    assert [worker.ended() for worker in workers] == [0, 0, 0]
    assert stage.runs() == dict.fromkeys(every, 1)
    assert set(ArchivedJob.objects.values_list("state", "retry_count")) == {("DELIVERED", 0)}


def test_no_more_jobs_than_threads_are_claimed_before_a_run_has_ended(stage: Stage) -> None:
    stage.consumer()
    stage.until_gate(24)
    worker = stage.worker("--concurrency", "4", "--max-fetch-interval", "0.05")
    stage.wait_for("started", 4)
    publish("awaited", {"seconds": 0.0})
    # The worker claims this job after it had time to look for more of the others.
    wait_until(lambda: ArchivedJob.objects.exists())
    assert Job.objects.filter(state="INFLIGHT").count() == 4
    stage.open_gate()
    stage.wait_for("ended", 25)
    assert worker.stop() == 0


def test_a_slow_job_is_claimed_at_most_half_a_second_before_a_thread_comes_free(
    stage: Stage,
) -> None:
    stage.consumer()
    stage.publish(12, seconds=1.0)
    worker = stage.worker("--concurrency", "4", "--burst")
    assert worker.ended() == 0
    rows = list(ArchivedJob.objects.order_by("claimed_at"))
    runs = [row.run_seconds or 0.0 for row in rows]
    assert min(runs) >= 1.0
    starts = [row.started_at for row in rows if row.started_at]
    for number, row in enumerate(rows):
        assert row.claimed_at
        long_ago = row.claimed_at - timedelta(seconds=0.4)
        have_run = [start for start in starts if start <= long_ago]
        assert len(have_run) > number - 4, f"job {number} was claimed too early"


def test_the_run_of_a_failed_job_is_recorded_as_well(stage: Stage) -> None:
    stage.consumer(max_retries=0)
    stage.publish(1, seconds=0.2, fail="broken")
    worker = stage.worker("--burst")
    assert worker.ended() == 0
    [row] = ArchivedJob.objects.all()
    assert row.state == "DEAD"
    assert row.started_at
    assert row.claimed_at
    assert row.claimed_at <= row.started_at <= row.settled_at
    assert row.run_seconds
    assert 0.2 <= row.run_seconds <= (row.settled_at - row.started_at).total_seconds()
