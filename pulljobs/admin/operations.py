"""Actions on jobs that the admin offers to operators, as data, and the messages of results."""

from typing import Any, Final, NamedTuple

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from pulljobs import auditing, ids
from pulljobs.models import AuditEntry
from pulljobs.states import TRANSITIONS, Event


class Operation(NamedTuple):
    """Action on jobs, as buttons and pages of the admin show it."""

    slug: str
    """Name in URLs and forms."""
    label: Any
    explained: Any
    """Sentence under the title of the page that asks for a confirmation."""
    permission: str
    """Permission of Django that the user needs."""


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
    """Return the actions that the user may do and that a job in this state allows.

    If `state` is None, these are the actions that at least one state allows.
    """
    return [
        event
        for event, operation in OPERATIONS.items()
        if request.user.has_perm(operation.permission)
        and (state is None or state in TRANSITIONS[event].sources)
    ]


def perform(request: HttpRequest, event: Event, jobs: list[int]) -> None:
    """Do an action to each job whose state allows it, and add messages with the results.

    The audit trail gets an entry. All jobs change in one transaction.
    """
    entry = auditing.act(event, jobs, by=request.user.get_username())
    report(request, entry)


def report(request: HttpRequest, entry: AuditEntry) -> None:
    """Show the user which jobs an action changed and, by reason, which it did not change."""
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
