"""Runs of versions that no worker accepts: doctor, explain, the metrics and the page name them."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models.functions import Now

from pulljobs import ids
from pulljobs.diagnosis import explain
from pulljobs.models import Job, Node
from pulljobs.testing import drain
from pulljobs.workflows import doctor, gauges
from pulljobs.workflows.models import WorkflowStep
from tests.admin.conftest import browser_of
from tests.factories import USING
from tests.workflows.runs.conftest import Bench


@pytest.fixture
def run_id(bench: Bench) -> int:
    """Return a run of version 1 that waits for a signal."""
    bench.workflow(lambda run: run.wait("approval"))
    run_id = bench.start()
    drain()
    return run_id


def start_worker(bench: Bench, oldest: int, newest: int) -> None:
    """Store the row of a living worker that accepts these versions of the workflow."""
    path = f"{bench.consumer.channel.name}/{bench.consumer.name}"
    report = {"serves": [path], "workflows": {path: [oldest, newest]}}
    Node.objects.create(name="w:1", started_at=Now(), heartbeat_at=Now(), report=report)


def read_gauges(bench: Bench) -> dict[str, Any]:
    place = (bench.consumer.channel.name, bench.consumer.name)
    return {
        "/".join([name, *labels[2:]]): value
        for name, labels, value in gauges.read_samples(USING)
        if labels[:2] == place
    }


def test_a_run_that_a_worker_accepts_is_not_reported(bench: Bench, run_id: int) -> None:
    assert list(doctor.check_runs()) == [], "no worker serves the consumer at all"
    start_worker(bench, 2, 2)
    start_worker(bench, 1, 1)
    assert list(doctor.check_runs()) == []
    assert read_gauges(bench)["pulljobs_runs_stranded"] == 0


def test_a_run_of_a_version_that_no_worker_accepts_is_named(bench: Bench, run_id: int) -> None:
    start_worker(bench, 2, 3)
    [finding] = doctor.check_runs()
    assert finding.is_error
    assert "version 1, and its living workers accept 2 to 3" in finding.text
    assert ids.encode(run_id) in finding.text
    codes = [reason.code for reason in explain.reasons(Job.objects.get())]
    assert codes == ["other_version", "waits_for_signal"]
    assert read_gauges(bench)["pulljobs_runs_stranded"] == 1
    olga = browser_of(User.objects.create_superuser("olga"))
    page = olga.get(f"/admin/pulljobs_workflows/workflowrun/{run_id}/change/").content.decode()
    assert "The run has version 1" in page


def test_a_sleep_that_is_over_keeps_no_run(bench: Bench) -> None:
    """`explain` names no sleep that is over, but the time from which the job can be claimed."""
    bench.workflow(lambda run: run.sleep("night", timedelta(hours=8)))
    run_id = bench.start()
    drain()
    row = Job.objects.get(id=run_id)
    assert [reason.code for reason in explain.reasons(row)] == ["sleeps", "no_worker"]
    WorkflowStep.objects.update(due_at=Now())
    assert [reason.code for reason in explain.reasons(row)] == ["not_due", "no_worker"]


def test_runs_are_counted_by_what_they_wait_for_and_by_the_time_they_are_overdue(
    bench: Bench, run_id: int
) -> None:
    bench.start()  # It has not begun, so it is no run yet.
    counted = read_gauges(bench)
    assert (counted["pulljobs_runs/signal"], counted["pulljobs_runs/ready"]) == (1, 0)
    assert counted["pulljobs_run_overdue_seconds"] == 0
    Job.objects.filter(id=run_id).update(available_at="2026-01-01T00:00:00Z")
    counted = read_gauges(bench)
    assert (counted["pulljobs_runs/signal"], counted["pulljobs_runs/ready"]) == (0, 1)
    assert counted["pulljobs_run_overdue_seconds"] > 3600
