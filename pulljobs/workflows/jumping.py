"""Jumps of time in tests: sleeps end at once, and the jobs that a run waits for run at once."""

from collections.abc import Callable

from django.db.models import F, Min, Q, QuerySet
from django.db.models.functions import Now

from pulljobs import handlers, ids
from pulljobs.conf import settings
from pulljobs.diagnosis import explain
from pulljobs.models import Job
from pulljobs.states import State
from pulljobs.testing.draining import drain
from pulljobs.workflows.models import Batch, StepKind, WorkflowRun, WorkflowStep


def jump(waiting: QuerySet[Job]) -> list[int]:
    """Let the sleeps of these queued runs, and their waits with a time limit, end when claimed.

    Return the ids of those that wait for a signal without a limit, or for their children.
    """
    using = settings().DATABASE
    pending = WorkflowStep.objects.using(using).filter(
        run_id__in=list(waiting.values_list("id", flat=True)), ended_at=None
    )
    pending.filter(due_at__gt=Now()).update(due_at=Now())
    # A sleep that suspended the run is not marked as ended when it is over.
    bounded = pending.exclude(due_at=None).exclude(kind=StepKind.SLEEP).values("run_id")
    runs = WorkflowRun.objects.using(using).filter(
        Q(waiting_for__isnull=False) | Q(waiting_batch__in=Batch.objects.values("id")),
        id__in=list(waiting.filter(retry_count=0).values_list("id", flat=True)),
    )
    return list(runs.exclude(id__in=bounded).values_list("id", flat=True))


def make_due(run_id: int) -> None:
    """Make a queued run due, as if the time until then had passed."""
    waiting = Job.objects.using(settings().DATABASE).filter(id=run_id, state=State.QUEUED)
    jump(waiting)
    waiting.update(available_at=Now())


def drain_started(run_id: int) -> bool:
    """Run started children that are due before the wait of a run ends.

    If none can run now, the time until the next one is due passes first. Return False if there is
    none.
    """
    served = {handler.channel for handler in handlers.registered()}
    channels = sorted(served.intersection(_list_channels(run_id, _started_by)))
    if any(drain(channel) for channel in channels):
        return True
    has_passed = _pass_time(run_id)
    return any(drain(channel) for channel in channels) or has_passed


def _pass_time(run_id: int) -> bool:
    """Let time pass until a started child is due. Return False if none is before the wait ends.

    It passes for the wait and for all children, so that a child that polls lets the wait end.
    """
    run = Job.objects.using(settings().DATABASE).filter(id=run_id)
    queued = _started_by([run_id]).filter(state=State.QUEUED)
    later = queued.filter(available_at__gt=Now(), available_at__lte=run.values("available_at"))
    wait = later.aggregate(wait=Min(F("available_at") - Now()))["wait"]
    if wait is None:
        return False
    for waiting in (run, queued):
        waiting.update(available_at=F("available_at") - wait)
    jump(queued.filter(available_at__lte=Now()))
    return True


def end_children(run_id: int) -> None:
    """Run the children that a run waits for, and their own children, with their handlers.

    Raise AssertionError for a child that does not end, such as one that waits for a signal.
    """
    while any(drain(channel, delayed=True) for channel in _list_channels(run_id, _children_of)):
        pass
    child = _children_of([run_id]).exclude(state=State.DEAD).order_by("id").first()
    if child is not None:
        raise AssertionError(
            f"The run waits for its child {ids.encode(child.pk)}, which does not end. "
            f"{explain.reasons(child)[0].text} To send a signal to a child, publish the message of "
            "the run, and call drain() and signal() in place of run_workflow()."
        )


def _list_channels(run_id: int, find: Callable[[list[int]], QuerySet[Job]]) -> list[str]:
    """Return the channels of the jobs that `find` returns for a run, for those jobs, and so on."""
    names: set[str] = set()
    waited = [run_id]
    while waited:
        rows = list(find(waited).values_list("id", "consumer__channel__name"))
        names |= {name for _id, name in rows}
        waited = [id for id, _name in rows]
    return sorted(names)


def _children_of(run_ids: list[int]) -> QuerySet[Job]:
    """Return the child jobs that these runs wait for, without the delivered ones."""
    using = settings().DATABASE
    waiting = WorkflowRun.objects.using(using).filter(id__in=run_ids, waiting_batch__isnull=False)
    return Job.objects.using(using).filter(batch_id__in=waiting.values("waiting_batch"))


def _started_by(run_ids: list[int]) -> QuerySet[Job]:
    """Return the child jobs of these runs, without the delivered ones."""
    using = settings().DATABASE
    made = Batch.objects.using(using).filter(run_id__in=run_ids)
    return Job.objects.using(using).filter(batch_id__in=made.values("id"))
