"""Actions of operators on jobs, with their labels and permissions."""

from typing import Any, Final, NamedTuple

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from pulljobs import auditing, ids
from pulljobs.models import AuditEntry
from pulljobs.states import TRANSITIONS, Event


class Operation(NamedTuple):
    """Action with its URL slug, label, explanation and permission."""

    slug: str
    label: Any
    explained: Any
    permission: str


OPERATIONS: Final = {
    Event.REDRIVE: Operation(
        "redrive",
        _("Redrive"),
        _("Queues dead jobs again with their retry counts and errors reset."),
        "pulljobs.redrive_job",
    ),
    Event.RELEASE: Operation(
        "requeue",
        _("Requeue"),
        _("Takes running jobs from their workers and queues them; nothing is charged."),
        "pulljobs.requeue_job",
    ),
    Event.RESCHEDULE: Operation(
        "reschedule",
        _("Reschedule"),
        _("Changes when queued jobs are due."),
        "pulljobs.reschedule_job",
    ),
    Event.KILL: Operation(
        "kill",
        _("Kill"),
        _("Kills queued and running jobs; a handler that runs a job finds its lease lost."),
        "pulljobs.kill_job",
    ),
    Event.DELETE: Operation(
        "delete",
        _("Delete"),
        _("Deletes dead jobs; their history stays in the archive."),
        "pulljobs.delete_job",
    ),
}
BY_SLUG: Final = {operation.slug: event for event, operation in OPERATIONS.items()}


def offered(request: HttpRequest, state: str | None) -> list[Event]:
    """Return what the user may do to a job in that state, or in any state if it is None."""
    return [
        event
        for event, operation in OPERATIONS.items()
        if request.user.has_perm(operation.permission)
        and (state is None or state in TRANSITIONS[event].sources)
    ]


def perform(request: HttpRequest, event: Event, jobs: list[int]) -> None:
    """Act on each job whose state allows it, and report the result of each."""
    entry = auditing.act(event, jobs, by=request.user.get_username())
    report(request, entry)


def report(request: HttpRequest, entry: AuditEntry) -> None:
    """Show the result for each of a few jobs."""
    slug = OPERATIONS[Event(entry.act)].slug
    for batch in entry.batches.all():
        if batch.done:
            messages.success(request, f"{slug}: {_listed(batch.done)}.")
        for reason, refused in _by_reason(batch.refused).items():
            messages.warning(request, f"{slug} did not change {_listed(refused)}: {reason}.")


def _by_reason(refused: dict[str, str]) -> dict[str, list[int]]:
    reasons: dict[str, list[int]] = {}
    for id, reason in refused.items():
        reasons.setdefault(reason, []).append(int(id))
    return reasons


def _listed(jobs: list[int]) -> str:
    return ", ".join(map(ids.encode, jobs))
