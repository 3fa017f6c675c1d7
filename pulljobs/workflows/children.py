"""Child jobs of runs: a run publishes them and gets their results and errors."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from django.db import transaction

from pulljobs import ids, operating
from pulljobs.conf import settings
from pulljobs.engine.validation import Draft, Payload
from pulljobs.errors import ChildFailed, WorkflowError
from pulljobs.models import ArchivedJob, Job
from pulljobs.states import Reason, State
from pulljobs.storage import settlements
from pulljobs.storage.transactions import call_on_commit
from pulljobs.workflows.batches import acting, adding
from pulljobs.workflows.models import Batch, WorkflowStep
from pulljobs.workflows.models.batches import LONGEST_NAME
from pulljobs.workflows.replay import FOREVER, Step
from pulljobs.workflows.storing import RunStore

KILLED: Final = (Reason.KILLED, Reason.PURGED, Reason.KEY_OVERFLOW)
END_OF_RUN: Final = "the end of its run"
"""Text at the end of the errors of children that were killed together with their run."""
LOOK_AGAIN: Final = timedelta(minutes=1)
"""Time after which a run looks again at children whose batch was deleted."""
SWEPT: Final = 100


class ChildJob(NamedTuple):
    """Job that a run has started by `run.start`."""

    id: str
    """Public id of the job."""
    batch_id: int
    """Batch of which the job is the only member, and whose end wakes the run."""


def publish(
    store: RunStore, step: Step, channel: str, drafts: Sequence[Draft | Payload], *, is_ended: bool
) -> Step:
    """Publish child jobs and write their step in one transaction, and return the step.

    `is_ended` is True for a step that does not wait for them. Raise what `publish_many` raises,
    LeaseLost, and WorkflowError for a draft that does not make exactly one new job.
    """
    store.before_effect(step)
    with transaction.atomic(using=store.using):
        made = adding.create(_name_batch(step, store.job.id), run_id=store.job.id)
        receipts = made.publish_many(channel, drafts)
        made.close()
        if wrong := [each for each in receipts if len(each.job_ids) != 1 or each.replaced]:
            raise WorkflowError(
                f"A child of {step} on channel {channel!r} is {len(wrong[0].job_ids)} jobs, or one "
                "that was queued before: use a channel with one consumer, message ids that are "
                "new, and keys whose jobs are not replaced."
            )
        step.batch_id = made.id
        step.children = [receipt.job_ids[0] for receipt in receipts]
        store.write_children(step, is_ended=is_ended)
    step.is_stored = True
    if is_ended:
        store.on_stored(store.job, step)
    return step


def _name_batch(step: Step, run_id: int) -> str:
    text = "".join(char if char.isprintable() else " " for char in step.name)
    end = f" of {ids.encode(run_id)}"
    return text[: LONGEST_NAME - len(end)] + end


def collect(store: RunStore, step: Step, batch_id: int | None) -> list[dict[str, Any]] | timedelta:
    """Return what `read_outcomes` returns for the children of a step, once all have ended.

    Until then, return how long to suspend the run, unless the end of the batch wakes it before.
    """
    batch = Batch.objects.using(store.using).filter(pk=batch_id or 0).only("completed_at").first()
    if batch is not None and batch.completed_at is None:
        return FOREVER
    # A child that was redriven goes on, although the batch does not know that yet.
    children = Job.objects.using(store.using).filter(id__in=step.children or [])
    if children.exclude(state=State.DEAD).exists():
        # A batch that is not there was complete, and was deleted because of its age.
        return LOOK_AGAIN if batch is None else FOREVER
    return read_outcomes(store.using, step.children or [])


def read_outcomes(using: str, job_ids: Sequence[int]) -> list[dict[str, Any]]:
    """Return a dict per ended job, in order: `result`, or else `child`, `reason` and `error`.

    The reason is `deleted` if neither the job nor its delivery is stored.
    """
    dead = {row.pk: row for row in Job.objects.using(using).filter(id__in=job_ids)}
    # Read after the live jobs: a job that is delivered in between is in one of the two.
    archive = ArchivedJob.objects.using(using).filter(job_id__in=job_ids, state=State.DELIVERED)
    delivered = {row.job_id: row for row in settlements.since(archive, list(job_ids))}
    return [
        {"result": delivered[id].result}
        if id in delivered
        else {
            "child": ids.encode(id),
            "reason": dead[id].reason if id in dead else "deleted",
            "error": dead[id].error if id in dead else None,
        }
        for id in job_ids
    ]


def values_of(outcomes: Sequence[dict[str, Any]], *, return_errors: bool) -> list[Any]:
    """Return the results in these outcomes. Raise ChildFailed for the first child without one.

    With `return_errors` the list has exceptions in place of missing results.
    """
    values = [
        outcome["result"]
        if "result" in outcome
        else ChildFailed(outcome["child"], outcome["reason"], outcome["error"])
        for outcome in outcomes
    ]
    failed = next((value for value in values if isinstance(value, ChildFailed)), None)
    if failed is not None and not return_errors:
        raise failed
    return values


def encode_outcomes(outcomes: Sequence[dict[str, Any]]) -> str:
    """Return outcomes as JSON, without a check of its size: each result was checked before."""
    return json.dumps(list(outcomes), ensure_ascii=False)


def kill_children(job_ids: Sequence[int]) -> None:
    """Kill the queued children of the runs among these jobs, which have been killed."""
    rows = Batch.objects.using(settings().DATABASE).filter(run_id__in=job_ids)
    # A cancelled batch may have members again, which were redriven.
    cancel(rows.filter(completed_at=None).values_list("pk", flat=True))


@contextmanager
def redriving_killed(job_ids: Sequence[int]) -> Iterator[None]:
    """Redrive the children that were killed because their run, among these jobs, was killed.

    This happens before the block, which redrives the runs. Until the commit the batches stay
    cancelled, or the sweep would kill the children again.
    """
    using = settings().DATABASE
    dead = Job.objects.using(using).filter(id__in=job_ids, state=State.DEAD, reason__in=KILLED)
    steps = WorkflowStep.objects.using(using).filter(run_id__in=dead.values("id"))
    batch_ids = [id for id in steps.values_list("batch_id", flat=True) if id is not None]
    killed = Job.objects.using(using).filter(batch_id__in=batch_ids, error__endswith=END_OF_RUN)
    killed = killed.filter(reason=Reason.KILLED).order_by("id")
    child_ids = list(killed.values_list("id", flat=True))
    for start in range(0, len(child_ids), acting.CHUNK):
        operating.redrive(child_ids[start : start + acting.CHUNK])
    yield
    rows = Batch.objects.using(using).filter(id__in=batch_ids, cancelled_at__isnull=False)
    # After the commit, because a decision locks a batch before its run.
    call_on_commit(using, partial(rows.update, cancelled_at=None))


def sweep(using: str) -> None:
    """Kill queued children of runs that were killed, purged or dropped by a full key.

    A call cancels at most `SWEPT` batches, which no killer has cancelled.
    """
    open_batches = Batch.objects.using(using).filter(run_id__isnull=False, completed_at=None)
    killed = Job.objects.using(using).filter(state=State.DEAD, reason__in=KILLED)
    rows = open_batches.filter(cancelled_at=None, run_id__in=killed.values("id"))
    cancel(rows.values_list("pk", flat=True)[:SWEPT])


def cancel(batch_ids: Iterable[int], *, by: str = END_OF_RUN) -> None:
    """Kill the queued members of these batches of child jobs. Their errors name `by`.

    A batch that is not there was complete, and was deleted because of its age.
    """
    rows = Batch.objects.using(settings().DATABASE).filter(pk__in=list(batch_ids))
    acting.cancel_rows(rows.order_by("pk"), by=by)
