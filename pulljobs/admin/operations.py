"""What an operator may do to jobs: the events of the table that are an operator's."""

from typing import Any, Final, NamedTuple

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from pulljobs import auditing, ids
from pulljobs.models import AuditEntry
from pulljobs.states import TRANSITIONS, Event


class Operation(NamedTuple):
    word: str
    label: Any
    explained: Any
    permission: str


OPERATIONS: Final = {
    Event.REDRIVE: Operation(
        "redrive",
        _("Redrive"),
        _("Queues what is dead again, as new: no retries counted, no error."),
        "pulljobs.redrive_job",
    ),
    Event.RELEASE: Operation(
        "requeue",
        _("Requeue"),
        _("Takes what is in flight from who holds it; it waits again, and nothing is charged."),
        "pulljobs.requeue_job",
    ),
    Event.RESCHEDULE: Operation(
        "reschedule",
        _("Reschedule"),
        _("Changes when what waits is due."),
        "pulljobs.reschedule_job",
    ),
    Event.KILL: Operation(
        "kill",
        _("Kill"),
        _("Ends what waits or runs; a handler that runs it finds its lease lost."),
        "pulljobs.kill_job",
    ),
    Event.DELETE: Operation(
        "delete",
        _("Delete"),
        _("Forgets what is dead; its history stays."),
        "pulljobs.delete_job",
    ),
}
BY_WORD: Final = {operation.word: event for event, operation in OPERATIONS.items()}


def offered(request: HttpRequest, state: str | None) -> list[Event]:
    """What this user may do to a job in that state; None: in any."""
    return [
        event
        for event, operation in OPERATIONS.items()
        if request.user.has_perm(operation.permission)
        and (state is None or state in TRANSITIONS[event].sources)
    ]


def perform(request: HttpRequest, event: Event, jobs: list[int]) -> None:
    """Do it to each job that is in a state for it, and tell of each what became of it."""
    entry = auditing.act(event, jobs, by=request.user.get_username())
    tell(request, entry)


def tell(request: HttpRequest, entry: AuditEntry) -> None:
    """What became of each of few jobs."""
    word = OPERATIONS[Event(entry.act)].word
    for batch in entry.batches.all():
        if batch.done:
            messages.success(request, f"{word}: {_listed(batch.done)}.")
        for reason, refused in _by_reason(batch.refused).items():
            messages.warning(request, f"{word} left alone {_listed(refused)}: {reason}.")


def _by_reason(refused: dict[str, str]) -> dict[str, list[int]]:
    reasons: dict[str, list[int]] = {}
    for id, reason in refused.items():
        reasons.setdefault(reason, []).append(int(id))
    return reasons


def _listed(jobs: list[int]) -> str:
    return ", ".join(map(ids.encode, jobs))
