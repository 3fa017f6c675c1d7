"""Actions of operators on runs, with their entries in the audit trail."""

from typing import Any

from django.db import transaction

from pulljobs import auditing
from pulljobs.conf import settings
from pulljobs.models import AuditEntry
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
) -> None:
    """Redrive a run and note that in the audit trail. Raise what `redriving.redrive` raises."""
    subject = f"run {run_id}" if from_step is None else f"run {run_id} from {from_step}"
    with transaction.atomic(using=settings().DATABASE):
        redriving.redrive(run_id, from_step=from_step, discard_signals=discard_signals)
        auditing.note(AuditEntry.Act.REDRIVE, by=by, subject=subject, done=1)
