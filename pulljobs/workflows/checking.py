"""Dry replay: the code of this process against stored runs, without calls of steps."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple
from uuid import UUID

from asgiref.sync import async_to_sync
from django.db import connections, transaction

from pulljobs import ids
from pulljobs.claimed_jobs import Grant
from pulljobs.conf import settings
from pulljobs.engine.outcomes import Held
from pulljobs.errors import StepMismatch
from pulljobs.handlers import ClaimedJob, Handler
from pulljobs.models import Job
from pulljobs.storage.rows import HeldJob, StoredMessage
from pulljobs.worker import transactions
from pulljobs.workflows import definitions
from pulljobs.workflows.async_runs import AsyncRun
from pulljobs.workflows.context import RunContext
from pulljobs.workflows.definitions import Workflow
from pulljobs.workflows.dry_store import DryReplay, DryStore, ReplayEnd
from pulljobs.workflows.loading import live_runs
from pulljobs.workflows.models import WorkflowRun
from pulljobs.workflows.replay import Continuation, Step, Suspension
from pulljobs.workflows.runs import Run

AT_ONCE: Final = 200
SHOWN: Final = 5
LONGEST_TEXT: Final = 200
"""Longest text of an exception in the description of a problem."""
LONGEST_WAIT: Final = 2.0
"""Seconds that the replay of a run waits for its other tasks."""
NO_TOKEN: Final = UUID(int=0)


class CheckedRun(NamedTuple):
    """Run that the code of this process can't continue as it is stored, and why."""

    id: str
    workflow: str
    version: int
    problem: str


class CheckedRuns(NamedTuple):
    """Result of a check: the number of replayed runs, and the runs that can't continue."""

    replayed: int
    left: int
    """Runs of versions that this code does not accept: other workers run them."""
    broken: list[CheckedRun]


def check_runs(version: int | None = None) -> CheckedRuns:
    """Replay runs with live jobs, of versions that this code accepts.

    With `version`, runs of other versions are left out. Return the runs that the code can't
    continue as they are stored. Steps that have not ended stop the replay, and code between steps
    runs in read-only transactions of pulljobs and of `default`.
    """
    using, left, replayed = settings().DATABASE, 0, 0
    known = {(each.channel, each.consumer): each for each in definitions.registered()}
    broken: list[CheckedRun] = []
    for run, job, steps, message in live_runs(using, version):
        workflow = known.get(job.consumer.names)
        if workflow is None:
            broken.append(_checked(run, f"No workflow has the consumer {job.consumer.path}."))
        elif not workflow.oldest_version <= run.version <= workflow.version:
            left += 1
        else:
            replayed += 1
            if problem := replay(workflow, run, job, steps, message):
                broken.append(_checked(run, problem))
    return CheckedRuns(replayed, left, broken)


def replay(
    workflow: Workflow,
    run: WorkflowRun,
    job: Job,
    steps: Sequence[Step],
    message: StoredMessage,
) -> str:
    """Replay a run without calling steps. Return where the code differs from its steps, or ''."""
    context = _make_context(workflow, run, job, steps, message)
    ends: list[BaseException] = []
    try:
        with _read_only():
            _call(workflow, context)
    except (Exception, ReplayEnd, Suspension, Continuation, BaseExceptionGroup) as error:
        ends = list(_list_leaves(error))
    if mismatch := next((end for end in ends if isinstance(end, StepMismatch)), None):
        return str(mismatch)
    unknown = context.replay.unknown()
    return _describe(ends[0] if ends else None, unknown) if unknown else ""


def _list_leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a group, as a TaskGroup raises it, or else the exception itself."""
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for each in error.exceptions:
        yield from _list_leaves(each)


def _describe(end: BaseException | None, unknown: Sequence[Step]) -> str:
    """Describe how the code differs: it ended by `end` and did not ask for the `unknown` steps."""
    if isinstance(end, ReplayEnd):
        return f"The code asks for {end.step.kind} {end.step} where the run has {_names(unknown)}."
    if isinstance(end, Exception):
        text = str(end).partition("\n")[0][:LONGEST_TEXT]
        return f"The code raises {type(end).__name__} ({text}) before {_names(unknown)}."
    return f"The code does not ask for {_names(unknown)}."


def _call(workflow: Workflow, context: RunContext) -> None:
    if workflow.is_async:
        # Its sync code runs in this thread, whose transaction is read-only.
        async_to_sync(_acall)(workflow, context)
    else:
        workflow.function(Run(context))


async def _acall(workflow: Workflow, context: RunContext) -> None:
    try:
        await workflow.function(AsyncRun(context))
    finally:
        # One task has come to a step that has not ended. Others may have stored steps to ask for.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=LONGEST_WAIT)


@contextmanager
def _read_only() -> Iterator[None]:
    """Run the block in transactions that refuse writes, and roll them back."""
    with ExitStack() as stack:
        for using in transactions.databases():
            stack.enter_context(transaction.atomic(using=using))
            stack.callback(transaction.set_rollback, True, using=using)
            with connections[using].cursor() as cursor:
                cursor.execute("SET TRANSACTION READ ONLY")
        yield


def _make_context(
    workflow: Workflow,
    run: WorkflowRun,
    row: Job,
    steps: Sequence[Step],
    message: StoredMessage,
) -> RunContext:
    using = settings().DATABASE
    handler = Handler(
        channel=workflow.channel, consumer=workflow.consumer, function=workflow.function
    )
    token = row.lease_token or NO_TOKEN
    grant = Grant(
        handler=handler,
        lease_duration=row.consumer.lease_duration,
        claimed_at=time.monotonic(),
        renew=lambda job: True,
        stopping=lambda: False,
    )
    held = HeldJob(row.pk, row.message_id, row.priority, row.retry_count, row.deliveries)
    job = ClaimedJob(held, message, Held(row.pk, token), grant)
    return RunContext(
        job=job,
        workflow=workflow,
        replay=DryReplay.of_steps(steps),
        store=DryStore(using, job),
        version=run.version,
        rounds=run.rounds,
        is_continued=run.input is not None,
        input=None if run.input is None else run.input[0],
    )


def _names(steps: Sequence[Step]) -> str:
    more = f" and {len(steps) - SHOWN} more" if len(steps) > SHOWN else ""
    return ", ".join(f"{step.kind} {step}" for step in steps[:SHOWN]) + more


def _checked(run: WorkflowRun, problem: str) -> CheckedRun:
    return CheckedRun(ids.encode(run.id), run.workflow, run.version, problem)
