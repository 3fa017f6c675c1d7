"""Runs are verified, counted, and forgotten after their end."""

from datetime import timedelta
from typing import Any

from pulljobs.models import Job
from pulljobs.testing import drain
from pulljobs.workflows import Run, gauges, history, signal, verifying
from pulljobs.workflows.models import RunSignal, WorkflowRun, WorkflowStep
from tests.factories import USING
from tests.workflows.runs.conftest import Bench


def approve(run: Run) -> Any:
    run.step("charge", abs, -1)
    return run.wait("approval")


def test_a_run_that_was_not_woken_breaks_an_invariant(bench: Bench) -> None:
    bench.workflow(approve)
    run_id = bench.start()
    drain()
    assert verifying.verify_part().broken == {}
    assert list(gauges.read_samples(USING)) == [("pulljobs_runs_waiting", ("approval",), 1)]
    RunSignal.objects.create(id=1, run_id=run_id, name="approval")
    WorkflowStep.objects.filter(name="charge").update(position=2)
    assert set(verifying.verify_part().broken) == {"signalled_run_is_woken", "step_has_its_place"}


def test_only_runs_that_have_ended_are_forgotten(bench: Bench) -> None:
    bench.workflow(approve)
    waits, ends = bench.start(), bench.start()
    drain()
    signal(ends, "approval")
    Job.objects.filter(id=ends).update(available_at="2026-01-01T00:00:00Z")
    drain()
    assert history.forget_runs(USING, timedelta(days=1)) == 0
    assert history.forget_runs(USING, timedelta()) == 1
    assert WorkflowRun.objects.get().pk == waits
    assert set(WorkflowStep.objects.values_list("run_id", flat=True)) == {waits}
    assert not RunSignal.objects.exists()
