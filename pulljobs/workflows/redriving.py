"""Redrive of runs from a step: that step and what followed it are forgotten."""

from functools import partial
from typing import Final

from pulljobs import ids, operating
from pulljobs.conf import settings
from pulljobs.engine.validation import encodable
from pulljobs.errors import UnknownRun, WorkflowError
from pulljobs.models import Job
from pulljobs.states import State
from pulljobs.storage.statements import run
from pulljobs.storage.transactions import brief, call_on_commit
from pulljobs.workflows import children, signals
from pulljobs.workflows.models import WorkflowStep

REDRIVABLE: Final = (State.DEAD, State.QUEUED)


def redrive(
    run_id: int | str,
    *,
    from_step: str | tuple[str, int] | None = None,
    discard_signals: bool = False,
) -> None:
    """Let a DEAD, sleeping or waiting run go on, in the caller's transaction.

    `from_step`, a name or a name with its number, forgets that step and the steps after it: they
    run again. Waits among them get their signals again, or with `discard_signals` wait for new
    ones. Queued children of these steps are killed after the commit, because the steps publish new
    ones. Without `from_step`, a run that sleeps or waits in a step does so again. Raise UnknownRun,
    and WorkflowError for a run that is in flight or DELIVERED, or that has no such step, and for
    `discard_signals` without `from_step`.
    """
    if discard_signals and from_step is None:
        raise WorkflowError("discard_signals needs from_step, the wait that consumed the signal.")
    using, number = settings().DATABASE, ids.find_number(run_id)
    if number is None:
        raise UnknownRun(run_id)
    with brief(using):
        run(using, "lock_runs", {"run_ids": [number]})
        state = Job.objects.using(using).filter(id=number).values_list("state", flat=True).first()
        _check(using, run_id, number, state)
        if from_step is not None:
            params = {
                "run_id": number,
                "position": _find_position(using, number, from_step),
                "discards_signals": discard_signals,
            }
            forgotten = run(using, "forget_steps", params)
            _kill_children(using, [row.batch_id for row in forgotten if row.batch_id is not None])
        if state == State.DEAD:
            operating.redrive([number])
        else:
            operating.reschedule([number], at=None)


def _kill_children(using: str, batch_ids: list[int]) -> None:
    kill = partial(children.cancel, batch_ids, by="the redrive of its run")
    if batch_ids:
        call_on_commit(using, kill)


def _check(using: str, run_id: int | str, number: int, state: str | None) -> None:
    if state is None and (past := signals.find_past_state(using, number)) == State.DELIVERED:
        state = past
    if state is None:
        raise UnknownRun(run_id)
    if state not in REDRIVABLE:
        advice = "Publish its message again." if state == State.DELIVERED else "Wait, or kill it."
        raise WorkflowError(
            f"Run {ids.encode(number)} is {state}: it can be redriven when it is DEAD, or when it "
            f"sleeps or waits. {advice}"
        )


def _split(from_step: object) -> tuple[str, int]:
    """Return (name, number) of a step, given as such a pair, or as the name alone for number 1."""
    match from_step:
        case str():
            return from_step, 1
        case (str() as name, int() as number):
            return name, number
    raise TypeError(
        f"from_step must be the name of a step, or its name and number, not {from_step!r}."
    )


def _find_position(using: str, number: int, from_step: str | tuple[str, int]) -> int:
    name, count = _split(from_step)
    steps = WorkflowStep.objects.using(using).filter(run_id=number)
    named = steps.filter(name=name, number=count) if encodable(name) else steps.none()
    position = named.values_list("position", flat=True).first()
    if position is None:
        known = ", ".join(steps.order_by("position").values_list("name", flat=True)[:20]) or "none"
        raise WorkflowError(
            f"Run {ids.encode(number)} has no step {name!r} number {count}; its steps: {known}."
        )
    return int(position)
