"""Actions of operators on runs, with their entries in the audit trail."""

from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q

from pulljobs import auditing
from pulljobs.conf import settings
from pulljobs.errors import WorkflowError
from pulljobs.models import AuditEntry
from pulljobs.storage.audit import was_asked
from pulljobs.workflows import redriving, signals


def signal(
    run_id: int | str, name: str, payload: Any = None, *, dedupe_id: str | None = None, by: str
) -> bool:
    """Send a signal to a run and note its name in the audit trail. The payload is not noted.

    Return False if the run had a signal with this `dedupe_id` already.
    """
    with transaction.atomic(using=settings().DATABASE):
        is_sent = signals.signal(run_id, name, payload, dedupe_id=dedupe_id)
        auditing.note(
            AuditEntry.Act.SIGNAL, by=by, subject=f"run {run_id}: {name}", done=int(is_sent)
        )
    return is_sent


def redrive(
    run_id: int | str,
    *,
    from_step: str | tuple[str, int] | None = None,
    discard_signals: bool = False,
    by: str,
    opened_at: datetime | None = None,
) -> None:
    """Redrive a run and note that in the audit trail. Raise what `redriving.redrive` raises.

    Raise WorkflowError as well if a user redrove the run after `opened_at`, the time when the
    caller's page was opened.
    """
    subject = f"run {run_id}" if from_step is None else f"run {run_id} from {from_step}"
    with transaction.atomic(using=settings().DATABASE):
        redriving.redrive(run_id, from_step=from_step, discard_signals=discard_signals)
        _check_page(run_id, opened_at)  # It reads the entries of all who had the lock of the run.
        auditing.note(AuditEntry.Act.REDRIVE, by=by, subject=subject, done=1)


def _check_page(run_id: int | str, opened_at: datetime | None) -> None:
    """Raise WorkflowError if a user redrove the run after `opened_at`, if that is given."""
    subject = f"run {run_id}"
    of_run = Q(subject=subject) | Q(subject__startswith=f"{subject} from ")
    if was_asked(settings().DATABASE, of_run, [AuditEntry.Act.REDRIVE], opened_at):
        raise WorkflowError(
            "The run was not redriven again: it was redriven after you opened the page. Open the "
            "page again to redrive it once more."
        )
