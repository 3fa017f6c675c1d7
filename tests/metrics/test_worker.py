"""One scrape of a worker covers all its processes and agrees with the tables."""

import os
import signal
from collections import Counter

import pytest
from django.db.models import Count

from pulljobs.models import ArchivedJob, Attempt, Job
from tests.api.leases.processes import STARTING_SECONDS
from tests.metrics.scraping import Samples, by, counting, scrape
from tests.sessions import wait_until
from tests.worker.processes import Stage, Worker

pytestmark = pytest.mark.processes
FINISHED = "pulljobs_jobs_finished_total"


def test_a_scrape_of_two_processes_tells_what_the_tables_say(stage: Stage) -> None:
    """A worker's counts of deliveries, retries, dead jobs, claims and runs equal the tables."""
    stage.consumer(max_retries=1, retry_delays=[0.01])
    stage.until_gate(4)
    stage.publish(60)
    stage.publish(7, fail="no")
    worker = counting(stage, "--processes", "2", "--concurrency", "2", "--backoff-initial", "0")
    stage.wait_for("started", 4)
    stage.open_gate()
    wait_until(
        lambda: Counter(Job.objects.values_list("state", flat=True)) == {"DEAD": 7},
        STARTING_SECONDS,
    )
    settled = dict(ArchivedJob.objects.values_list("state").annotate(Count("id")).order_by())
    given_back = dict(Attempt.objects.values_list("event").annotate(Count("id")).order_by())
    assert settled == {"DELIVERED": 64, "DEAD": 7}
    claimed = sum(settled.values()) + given_back["retry"]
    # Counters follow the commits after a short delay.
    wait_until(lambda: _sums(worker) == {claimed}, STARTING_SECONDS)
    samples = scrape(worker)
    assert by(samples, FINISHED, "channel", "consumer", "event", "state") == {
        ("script", "plain", "deliver", "DELIVERED"): settled["DELIVERED"],
        ("script", "plain", "retry", "DEAD"): settled["DEAD"],
        ("script", "plain", "retry", "QUEUED"): given_back["retry"],
    }
    assert by(samples, "pulljobs_jobs_claimed_total") == {(): claimed}
    assert by(samples, "pulljobs_run_seconds_count") == {(): claimed}
    assert by(samples, "pulljobs_wait_seconds_count") == {(): sum(settled.values())}
    assert by(samples, "pulljobs_handler_failures_total", "kind") == {("raised",): 14}
    assert len({line.pid for line in stage.history("started")}) == 2, (
        "one process has too few slots"
    )
    # Gauges are read again when they are some seconds old.
    wait_until(lambda: by(scrape(worker), "dead_job_count", "consumer") == {("plain",): 7})
    wait_until(lambda: by(scrape(worker), "pulljobs_serving", "channel").get(("script",)) == 2)
    assert worker.stop() == 0


def _sums(worker: Worker) -> set[float]:
    samples = scrape(worker)
    names = FINISHED, "pulljobs_jobs_claimed_total", "pulljobs_run_seconds_count"
    return {by(samples, name).get((), 0.0) for name in names}


def test_counters_go_on_where_a_killed_child_left_them(stage: Stage) -> None:
    stage.consumer()
    worker = counting(stage, "--processes", "2", "--concurrency", "1")
    before: Samples = {}
    for done in (20, 40, 60):
        after = _after_twenty_more(stage, worker, done)
        assert not {key for key in before if is_counted(*key) and after.get(key, 0.0) < before[key]}
        before = after
        _replace_a_child(worker)
    assert worker.stop() == 0


def is_counted(name: str, _labels: object) -> bool:
    """Return True if samples of this name never fall, as those of counters and histograms."""
    ends = ("_total", "_count", "_bucket", "_sum")
    return name.endswith(ends) and not name.endswith("_job_count")


def _after_twenty_more(stage: Stage, worker: Worker, done: int) -> Samples:
    stage.publish(20)
    wait_until(
        lambda: by(scrape(worker), FINISHED, "state") == {("DELIVERED",): done}, STARTING_SECONDS
    )
    return scrape(worker)


def _replace_a_child(worker: Worker) -> None:
    child = worker.child
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: worker.child not in (0, child), STARTING_SECONDS)
