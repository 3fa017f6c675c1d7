"""Redrive of runs from a step: that step and what followed it are forgotten."""

from typing import Final

from pulljobs import ids, operating
from pulljobs.conf import settings
from pulljobs.errors import UnknownRun, WorkflowError
from pulljobs.models import Job
from pulljobs.states import State
from pulljobs.storage.statements import brief, run
from pulljobs.workflows.models import WorkflowStep
from pulljobs.workflows.signals import find_id

REDRIVABLE: Final = (State.DEAD, State.QUEUED)


def redrive(run_id: int | str, *, from_step: str | tuple[str, int] | None = None) -> None:
    """Let a DEAD run go on, or one that sleeps or waits, in the caller's transaction.

    `from_step`, a name or a name with its number, forgets that step and the steps after it: they
    run again, and waits among them get their signals again. Raise UnknownRun, and WorkflowError for
    a run that is in flight or DELIVERED, or that has no such step.
    """
    using, number = settings().DATABASE, find_id(run_id)
    if number is None:
        raise UnknownRun(run_id)
    with brief(using):
        run(using, "lock_runs", {"run_ids": [number]})
        state = Job.objects.using(using).filter(id=number).values_list("state", flat=True).first()
        _check(run_id, number, state)
        if from_step is not None:
            position = _find_position(using, number, from_step)
            run(using, "forget_steps", {"run_id": number, "position": position})
        if state == State.DEAD:
            operating.redrive([number])
        else:
            operating.reschedule([number], at=None)


def _check(run_id: int | str, number: int, state: str | None) -> None:
    if state is None:
        raise UnknownRun(run_id)
    if state not in REDRIVABLE:
        raise WorkflowError(
            f"Run {ids.encode(number)} is {state}: it can be redriven when it is DEAD, or when it "
            "sleeps or waits. Kill it first, or wait."
        )


def _find_position(using: str, number: int, from_step: str | tuple[str, int]) -> int:
    name, count = (from_step, 1) if isinstance(from_step, str) else from_step
    steps = WorkflowStep.objects.using(using).filter(run_id=number)
    position = steps.filter(name=name, number=count).values_list("position", flat=True).first()
    if position is None:
        known = ", ".join(steps.order_by("position").values_list("name", flat=True)[:20]) or "none"
        raise WorkflowError(
            f"Run {ids.encode(number)} has no step {name!r} number {count}; its steps: {known}."
        )
    return int(position)
