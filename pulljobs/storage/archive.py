"""Look-ups of jobs, live or settled."""

from datetime import timedelta

from pulljobs import ids
from pulljobs.models import ArchivedJob, Attempt, Job
from pulljobs.states import State
from pulljobs.storage import nodes, progress
from pulljobs.storage.forgetting import forget
from pulljobs.storage.rows import JobView


def find(using: str, job_id: int) -> JobView | None:
    """Return a job from its live row, or else from its last row in the archive, or None."""
    job = Job.objects.using(using).filter(id=job_id).first()
    last = ArchivedJob.objects.using(using).filter(job_id=job_id).order_by("id").last()
    if job is not None:
        view = _live(job, last)
    elif last is not None:
        view = _archived(last)
    else:
        return None
    return view._replace(progress=progress.find(using, job_id))


def forget_attempts(using: str, age: timedelta) -> int:
    """Delete a batch of attempts that ended longer ago than `age` and return their number."""
    oldest = ids.first_of(nodes.clock(using) - age)
    return forget(Attempt.objects.using(using).filter(id__lt=oldest))


def _live(job: Job, last: ArchivedJob | None) -> JobView:
    dead = last if job.state == State.DEAD else None
    return JobView(
        id=job.id,
        message_id=job.message_id,
        consumer_id=job.consumer_id,
        state=State(job.state),
        reason=job.reason,
        retry_count=job.retry_count,
        deliveries=job.deliveries,
        error=job.error,
        result=None,
        available_at=job.due_at,
        claimed_at=job.first_claimed_at,
        settled_at=dead.settled_at if dead else None,
        started_at=dead.started_at if dead else None,
        run_seconds=dead.run_seconds if dead else None,
    )


def _archived(last: ArchivedJob) -> JobView:
    return JobView(
        id=last.job_id,
        message_id=last.message_id,
        consumer_id=last.consumer_id,
        state=State(last.state),
        reason=last.reason,
        retry_count=last.retry_count,
        deliveries=last.deliveries,
        error=last.error,
        result=last.result,
        available_at=None,
        claimed_at=last.claimed_at,
        settled_at=last.settled_at,
        started_at=last.started_at,
        run_seconds=last.run_seconds,
    )
