"""What an operator may do to jobs: the events of the table that are an operator's."""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from pulljobs import ids, operating
from pulljobs.conf import settings
from pulljobs.models import Job
from pulljobs.operating import Outcome
from pulljobs.states import TRANSITIONS, Event, State


class Operation(NamedTuple):
    label: Any
    permission: str
    run: Callable[[list[int], str], Outcome]
    """With ids of jobs and the name of the user."""


OPERATIONS: Final = {
    Event.REDRIVE: Operation(
        _("Requeue what is dead (redrive)"),
        "pulljobs.change_job",
        lambda jobs, user: operating.redrive(jobs),
    ),
    Event.KILL: Operation(
        _("Kill"),
        "pulljobs.change_job",
        lambda jobs, user: operating.kill(jobs, by=user),
    ),
    Event.DELETE: Operation(
        _("Delete what is dead (its history stays)"),
        "pulljobs.delete_job",
        lambda jobs, user: operating.delete(jobs),
    ),
}


def offered(request: HttpRequest, state: str | None) -> list[Event]:
    """What this user may do to a job in that state; None: in any."""
    return [
        event
        for event, operation in OPERATIONS.items()
        if request.user.has_perm(operation.permission)
        and (state is None or state in TRANSITIONS[event].sources)
    ]


def perform(request: HttpRequest, event: Event, jobs: Iterable[int]) -> None:
    """Do it to each job that is in a state for it, and tell of each what became of it."""
    outcome = OPERATIONS[event].run(list(jobs), request.user.get_username())
    if outcome.done:
        LogEntry.objects.log_actions(
            request.user.pk or 0,
            [Job(id=id) for id in outcome.done],
            CHANGE,
            str(event),
        )
        messages.success(request, f"{event}: {_listed(outcome.done)}.")
    for reason, refused in _refusals(event, outcome.refused).items():
        messages.warning(request, f"{event} left alone {_listed(refused)}: {reason}.")


def _refusals(event: Event, refused: list[int]) -> dict[str, list[int]]:
    """Jobs by why nothing was done to them."""
    found = Job.objects.using(settings().DATABASE).filter(id__in=refused)
    now = dict(found.values_list("id", "state"))
    reasons: dict[str, list[int]] = {}
    for id in refused:
        reasons.setdefault(_why_not(event, now.get(id)), []).append(id)
    return reasons


def _why_not(event: Event, state: str | None) -> str:
    if state is None:
        return "it is no live job any more (delivered or deleted)"
    sources = " or ".join(source for source in State if source in TRANSITIONS[event].sources)
    return f"it is {state}, and {event} is for {sources}"


def _listed(jobs: list[int]) -> str:
    return ", ".join(map(ids.encode, jobs))
