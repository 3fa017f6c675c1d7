"""Runs are verified, counted, and forgotten after their end."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from pulljobs import ids, operating
from pulljobs.models import ArchivedJob, Job
from pulljobs.testing import drain
from pulljobs.workflows import Run, gauges, history, signal, verifying
from pulljobs.workflows.models import RunSignal, WorkflowRun, WorkflowStep
from tests.factories import USING
from tests.metrics.tracing import id_of, parent_of, traced
from tests.workflows.runs.conftest import Bench


def approve(run: Run) -> Any:
    run.step("charge", abs, -1)
    return run.wait("approval")


def test_a_run_that_was_not_woken_breaks_an_invariant(bench: Bench) -> None:
    bench.workflow(approve)
    run_id = bench.start()
    drain()
    assert verifying.verify_part().broken == {}
    assert ("pulljobs_runs_waiting", ("approval",), 1) in list(gauges.read_samples(USING))
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


def test_a_run_that_lasted_for_long_is_kept_as_long_as_its_settlement(bench: Bench) -> None:
    bench.workflow(lambda run: None)
    bench.start()
    drain()
    old = ids.first_of(timezone.now() - timedelta(days=9))
    ArchivedJob.objects.update(job_id=old)
    WorkflowRun.objects.update(id=old, began_at=ids.time_of(old))
    assert history.forget_runs(USING, timedelta(days=1)) == 0
    ArchivedJob.objects.update(id=ids.first_of(timezone.now() - timedelta(days=1, minutes=1)))
    assert history.forget_runs(USING, timedelta(days=1)) == 1


def test_live_runs_of_any_number_keep_no_run_that_ended_from_being_forgotten(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "AT_ONCE", 2)
    bench.workflow(lambda run: run.wait("approval") if run.input else None)
    waits, ends = [bench.start(True) for _ in range(4)], bench.start(False)
    drain()
    forgotten = [history.forget_runs(USING, timedelta()) for _ in range(4)]
    assert forgotten == [0, 0, 1, 0], "two old runs are read at a time"
    assert ends not in waits
    assert set(WorkflowRun.objects.values_list("id", flat=True)) == {*waits}


def test_a_run_is_one_trace_over_its_claims_with_a_span_for_each_step_that_ran(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.workflow(approve)
    with traced(monkeypatch) as trace:
        run_id = bench.start()
        drain()
        signal(run_id, "approval")
        Job.objects.update(available_at="2026-01-01T00:00:00Z")
        drain()
    claims = [span for span in trace.spans if span.name.startswith("process")]
    assert len(claims) == 2
    step = trace.find("step charge")
    assert parent_of(step) == id_of(claims[0])
    assert {id_of(span)[0] for span in (step, *claims)} == {id_of(step)[0]}


def test_signals_to_a_run_that_never_began_are_forgotten(bench: Bench) -> None:
    bench.workflow(approve)
    waits, dies, ends = bench.start(), bench.start(), bench.start()
    for run_id in (waits, dies, ends):
        signal(run_id, "approval")
    operating.kill([dies, ends], by="olga")
    operating.delete([ends])
    assert history.forget_signals(USING, timedelta(days=1)) == 0
    assert history.forget_signals(USING, timedelta(seconds=-1)) == 1
    assert set(RunSignal.objects.values_list("run_id", flat=True)) == {waits, dies}
