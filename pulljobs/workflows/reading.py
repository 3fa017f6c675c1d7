"""Look-ups of runs: their state, their steps and what they wait for."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from pulljobs import ids, jobs
from pulljobs.conf import settings
from pulljobs.errors import UnknownRun
from pulljobs.models import ArchivedJob, Job
from pulljobs.states import State
from pulljobs.storage import nodes
from pulljobs.storage.rows import JobView
from pulljobs.workflows.models import RunSignal, StepKind, WorkflowRun, WorkflowStep


class StepView(NamedTuple):
    """Stored step of a run."""

    row: WorkflowStep
    seconds: float | None
    """Time from the start of the step to its end, or until now or the end of its run."""
    ended_at: datetime | None
    """End of the step, or None if the run sleeps or waits in it, or was killed there."""

    @property
    def is_pending(self) -> bool:
        """True if the run sleeps or waits in this step, or was killed there."""
        return self.ended_at is None

    @property
    def label(self) -> str:
        """Name of the step, with its number from the second step of that name on."""
        row = self.row
        return row.name if row.number == 1 else f"{row.name} ({row.number})"

    @property
    def failure(self) -> str:
        """First line of the failure that the workflow caught, or an empty text."""
        stored = self.row.failure or {}
        if stored.get("timeout"):
            return "No signal came in time."
        return str(stored.get("text", "")).partition("\n")[0]


class RunView(NamedTuple):
    """Run with its job, its steps in order, and its 100 oldest signals that no wait consumed."""

    row: WorkflowRun
    job: JobView
    steps: list[StepView]
    signals: list[RunSignal]
    at: datetime
    """Time of the look-up by the database's clock."""

    @property
    def id(self) -> str:
        """Public id of the run."""
        return ids.encode(self.row.id)

    @property
    def waits_for(self) -> str:
        """Text for what a run waits for, such as `signal NAME`, or an empty text if not QUEUED."""
        return describe_wait(self.row, self.job, self.steps)


def get(run_id: int | str, *, with_results: bool = False) -> RunView:
    """Return a run, whose steps have their results only `with_results`: they may be large.

    Raise UnknownRun for a job that is no run, or that was not claimed yet, and UnknownJob if the
    job of the run is gone: the run is deleted later.
    """
    using, number = settings().DATABASE, ids.find_number(run_id)
    row = WorkflowRun.objects.using(using).filter(pk=number).first() if number else None
    if row is None:
        raise UnknownRun(run_id)
    job, now = jobs.get(row.pk), nodes.clock(using)
    ended = min(now, job.settled_at or now)
    steps = WorkflowStep.objects.using(using).filter(run_id=row.pk).order_by("position")
    steps = steps if with_results else steps.defer("result")
    signals = RunSignal.objects.using(using).filter(run_id=row.pk, consumed_at=None)
    return RunView(
        row,
        job,
        [_view(step, ended) for step in steps],
        list(signals.order_by("id").defer("payload")[:100]),
        now,
    )


def describe_wait(row: WorkflowRun, job: Job | JobView, steps: Sequence[StepView] = ()) -> str:
    """Describe what a run waits for, such as `signal NAME`. Return "" if it is not QUEUED."""
    if job.state != State.QUEUED:
        return ""
    if not row.began_for(job.message_id):
        return "a worker"
    if row.waiting_consumer is not None:
        return f"a worker that accepts version {row.version}"
    if job.retry_count:
        return "its next attempt"
    if row.waiting_for is not None:
        return f"signal {row.waiting_for}"
    if row.waiting_batch is not None:
        return "its children"
    pending = next((step for step in reversed(steps) if step.is_pending), None)
    return f"the end of {pending.label}" if pending is not None else "a worker"


def states_of(run_ids: Sequence[int]) -> dict[int, Job | ArchivedJob]:
    """Return by id the live job of each run, or else its last settlement, if there is one."""
    using = settings().DATABASE
    live: dict[int, Job | ArchivedJob] = {
        job.pk: job for job in Job.objects.using(using).filter(id__in=run_ids)
    }
    missing = [id for id in run_ids if id not in live]
    past = ArchivedJob.objects.using(using).filter(job_id__in=missing).order_by("id")
    return live | {job.job_id: job for job in past}


def _view(row: WorkflowStep, now: datetime) -> StepView:
    ended = _end_of(row, now)
    seconds = ((ended or now) - row.started_at).total_seconds()
    return StepView(row, max(0.0, seconds), ended)


def _end_of(row: WorkflowStep, now: datetime) -> datetime | None:
    """Return the end of a step, or None. A sleep with a `due_at` ends then: no claim writes it."""
    if row.kind == StepKind.SLEEP and row.due_at is not None and row.due_at <= now:
        return row.due_at
    return row.ended_at
