"""Reading of stored runs with their steps: the run of a claim, or all with a live job."""

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from pulljobs.engine.outcomes import Held
from pulljobs.engine.sql import Params, Row
from pulljobs.errors import LeaseLost, WorkflowError
from pulljobs.models import Job
from pulljobs.storage import messages, nodes
from pulljobs.storage.rows import StoredMessage
from pulljobs.storage.sessions import LONGEST_SECONDS
from pulljobs.storage.statements import run
from pulljobs.workflows import children
from pulljobs.workflows.definitions import Workflow
from pulljobs.workflows.models import WorkflowRun, WorkflowStep
from pulljobs.workflows.replay import Step

ATTEMPTS: Final = 3
AT_ONCE: Final = 200
"""Number of runs that are read together."""


class BegunRun(NamedTuple):
    """Columns of a run and its steps, read at the start of a claim."""

    version: int
    rounds: int
    is_continued: bool
    input: Any
    steps: list[Step]
    taken: list[Step]
    """The wait that this claim has ended with its signal, as the only item, or nothing."""


def begin_run(using: str, held: Held, workflow: Workflow, message_id: int) -> BegunRun:
    """Insert the run if this is its first claim, and return it with its steps.

    If it was suspended in a wait whose signal is there, the same statement ends the wait. If it
    began for an earlier message, which the message `message_id` replaced, it begins again, or
    raises LeaseLost. Raise WorkflowError if another session keeps the run locked.
    """
    params = {
        **held._asdict(),
        "run_id": held.job_id,
        "message_id": message_id,
        "workflow": workflow.name,
        "version": workflow.version,
        "oldest_version": workflow.oldest_version,
    }
    for _attempt in range(ATTEMPTS):
        rows = run(using, "begin_run", params, seconds=LONGEST_SECONDS, keeps_plan=True)
        if rows and not rows[0].is_renewed:
            return _make_begun(rows)
        if rows:
            _begin_again(using, held.job_id, params)
    raise WorkflowError(f"Another session keeps run {held.job_id} locked: it is tried again.")


def _begin_again(using: str, run_id: int, params: Params) -> None:
    """Delete steps and signals of a run for its former message, and kill its queued children."""
    rows = run(using, "renew_run", params, seconds=LONGEST_SECONDS)
    if not rows:
        raise LeaseLost(run_id)
    children.cancel(rows[0].batch_ids, by="the new message of its run")


def _make_begun(rows: Sequence[Row]) -> BegunRun:
    first, now = rows[0], time.monotonic()
    steps = [make_step(row, now) for row in rows if row.name is not None]
    taken = [step for step, row in zip(steps, rows, strict=False) if row.is_taken]
    return BegunRun(first.version, first.rounds, first.is_continued, first.input, steps, taken)


def make_step(row: Row, now: float) -> Step:
    """Convert a row of begin_run.sql to a step. The row was read at the monotonic time `now`."""
    return Step(
        name=row.name,
        number=row.number,
        position=row.position,
        kind=row.kind,
        function=row.function,
        is_ended=row.is_ended,
        is_stored=True,
        result=row.result,
        failure=row.failure,
        batch_id=row.batch_id,
        children=row.children,
        due=None if row.seconds_left is None else now + row.seconds_left,
    )


def live_runs(
    using: str, version: int | None
) -> Iterator[tuple[WorkflowRun, Job, list[Step], StoredMessage]]:
    """Yield run, job, steps and message of each run with a live job.

    The runs are those of a version, or of all versions if it is None. Left out are runs that begin
    again at their next claim, for another message.
    """
    rows = WorkflowRun.objects.using(using).order_by("id")
    if version is not None:
        rows = rows.filter(version=version)
    last = 0
    while page := list(rows.filter(id__gt=last)[:AT_ONCE]):
        last = page[-1].id
        live = Job.objects.using(using).select_related("consumer__channel")
        jobs = {job.pk: job for job in live.filter(id__in=[row.id for row in page])}
        if not jobs:
            continue
        steps = _read_steps(using, list(jobs))
        stored = messages.read_messages(using, [job.message_id for job in jobs.values()])
        for row in page:
            job = jobs.get(row.id)
            if job is not None and row.began_for(job.message_id):
                yield row, job, steps.get(row.id, []), stored[job.message_id]


def _read_steps(using: str, run_ids: list[int]) -> dict[int, list[Step]]:
    now, here = nodes.clock(using), time.monotonic()
    steps: dict[int, list[Step]] = {}
    for row in WorkflowStep.objects.using(using).filter(run_id__in=run_ids):
        steps.setdefault(row.run_id, []).append(make_stored_step(row, now, here))
    return steps


def make_stored_step(row: WorkflowStep, now: datetime, here: float) -> Step:
    """Convert a row to a step. The row was read at `now`, at the monotonic time `here`."""
    return Step(
        name=row.name,
        number=row.number,
        position=row.position,
        kind=row.kind,
        function=row.function,
        is_ended=row.ended_at is not None,
        is_stored=True,
        result=row.result,
        failure=row.failure,
        batch_id=row.batch_id,
        children=row.children,
        due=None if row.due_at is None else here + (row.due_at - now).total_seconds(),
    )
