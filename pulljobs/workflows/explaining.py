"""Reasons for which a run of a workflow waits."""

from collections.abc import Iterator

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.diagnosis import times
from pulljobs.diagnosis.wait_reasons import WaitReason
from pulljobs.models import Job
from pulljobs.storage import nodes
from pulljobs.workflows import versions
from pulljobs.workflows.models import WorkflowRun, WorkflowStep


def explain_run(job: Job) -> Iterator[WaitReason]:
    """Yield why a queued run waits, and until when. A retry is not among these reasons."""
    using = settings().DATABASE
    run = WorkflowRun.objects.using(using).filter(pk=job.pk).first()
    if run is None or not run.began_for(job.message_id):
        return
    if text := versions.describe_left(using, job.consumer_id, run):
        yield WaitReason("other_version", text)
    if job.retry_count:
        return
    steps = WorkflowStep.objects.using(using).filter(run_id=job.pk, ended_at=None)
    if (step := steps.order_by("-position").first()) is not None:
        yield from _explain_step(using, run, step)


def _explain_step(using: str, run: WorkflowRun, step: WorkflowStep) -> Iterator[WaitReason]:
    """Yield for what a run waits in its last step, or nothing if that is a sleep that is over."""
    if run.waiting_for is not None:
        limit = f", until {times.format_time(step.due_at)}" if step.due_at else ""
        yield WaitReason(
            "waits_for_signal",
            f"The run waits for a signal {run.waiting_for!r}{limit}: `pulljobs workflows signal "
            f"{ids.encode(run.pk)} {run.waiting_for}` sends it.",
        )
    elif run.waiting_batch is not None:
        number = len(step.children or [])
        children = "child" if number == 1 else f"{number:,} children"
        yield WaitReason(
            "waits_for_children", f"The run waits for its {children} of step {step.name!r}."
        )
    elif step.due_at is not None and step.due_at > nodes.clock(using):
        yield WaitReason(
            "sleeps",
            f"The run sleeps in step {step.name!r} until {times.format_time(step.due_at)}.",
        )
