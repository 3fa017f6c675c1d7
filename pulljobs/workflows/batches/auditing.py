"""Actions of operators on batches, with their entries in the audit trail."""

from collections.abc import Iterator
from datetime import datetime
from itertools import chain

from django.db.models import Q

from pulljobs import auditing, ids
from pulljobs.conf import settings
from pulljobs.errors import WorkflowError
from pulljobs.models import AuditEntry
from pulljobs.storage.audit import was_asked
from pulljobs.storage.transactions import brief
from pulljobs.workflows.batches import acting, adding
from pulljobs.workflows.models import Batch


def cancel(batch_id: int, *, by: str) -> int:
    """Cancel a batch and return how many members were killed. Raise UnknownBatch."""
    steps = acting.cancelling(acting.find(batch_id), by=by)
    return _note(steps, AuditEntry.Act.KILL, batch_id, by=by)


def redrive(batch_id: int, *, by: str, opened_at: datetime | None = None) -> int:
    """Redrive the dead members of a batch and return their number. Raise UnknownBatch.

    Raise WorkflowError if a user redrove or cancelled the batch after `opened_at`, the time when
    the caller's page was opened.
    """
    using, batch = settings().DATABASE, acting.find(batch_id)
    steps = chain([0], acting.redriving(batch))
    noted = auditing.noting(steps, AuditEntry.Act.REDRIVE, by=by, subject=_name(batch_id))
    with brief(using):
        # Of two presses of a button, the second waits here for the entry of the first. Publishers
        # have a weaker lock, for which `no_key` does not wait.
        list(Batch.objects.using(using).select_for_update(no_key=True).filter(pk=batch.pk))
        _check_page(using, batch_id, opened_at)
        next(noted)  # It makes the entry.
    return sum(noted)


def close(batch_id: int, *, by: str) -> None:
    """Close a batch. Raise UnknownBatch."""
    adding.extend(batch_id).close()
    auditing.note(AuditEntry.Act.UPDATE, by=by, subject=_name(batch_id))


def _note(steps: Iterator[int], act: AuditEntry.Act, batch_id: int, *, by: str) -> int:
    return sum(auditing.noting(steps, act, by=by, subject=_name(batch_id)))


def _check_page(using: str, batch_id: int, opened_at: datetime | None) -> None:
    """Raise WorkflowError if a user redrove or cancelled the batch after `opened_at`, if given."""
    acts = (AuditEntry.Act.REDRIVE, AuditEntry.Act.KILL)
    if was_asked(using, Q(subject=_name(batch_id)), acts, opened_at):
        raise WorkflowError(
            "The batch was not redriven: it was redriven or cancelled after you opened the page. "
            "Open the page again to redrive it."
        )


def _name(batch_id: int) -> str:
    return f"batch {ids.encode(batch_id)}"
