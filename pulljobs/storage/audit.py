"""Audit entries of actions on many jobs, which proceed in batches.

An entry has the progress of its action. Each batch of jobs is written in the transaction that
changes them.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from django.db.models import F, Q
from django.db.models.functions import Now

from pulljobs import ids
from pulljobs.models import AuditedBatch, AuditEntry


def was_asked(using: str, subject: Q, acts: Collection[str], after: datetime | None) -> bool:
    """Return True if a user asked for one of the acts on a subject after a time, unless None."""
    if after is None:
        return False
    entries = AuditEntry.objects.using(using).filter(subject, act__in=acts)
    return entries.filter(pk__gte=ids.first_of(after), asked_at__gt=after).exists()


def locked(using: str, entry_id: int | None = None) -> AuditEntry | None:
    """Lock and return an unfinished entry, by default the oldest one that no process has locked.

    Return None if it is finished, or if another process works on it.
    """
    rows = AuditEntry.objects.using(using).filter(finished_at=None)
    if entry_id is not None:
        rows = rows.filter(pk=entry_id)
    return rows.select_for_update(skip_locked=True).order_by("pk").first()


def advance(
    using: str,
    entry: AuditEntry,
    done: Sequence[int],
    refused: Mapping[int, str],
    beyond: int | None,
) -> None:
    """Write the result of a batch and move the entry's cursor.

    `done` has the ids of changed jobs, `refused` the reasons by id of the others. The next batch
    begins beyond the id `beyond`, or None marks the action as finished.
    """
    if done or refused:
        why = {str(id): text for id, text in refused.items()}
        AuditedBatch.objects.using(using).create(entry=entry, done=list(done), refused=why)
    AuditEntry.objects.using(using).filter(pk=entry.pk).update(
        cursor=entry.last if beyond is None else beyond,
        done=F("done") + len(done),
        refused=F("refused") + len(refused),
        finished_at=Now() if beyond is None else None,
    )


def stop(using: str, entry_id: int, by: str) -> bool:
    """Wait for the end of an action's current batch, then stop the action, for the user `by`.

    Return False if it had finished.
    """
    rows = AuditEntry.objects.using(using).filter(pk=entry_id, finished_at=None)
    return bool(rows.update(finished_at=Now(), stopped_by=by))


def batches_of(using: str, job_id: int) -> list[AuditedBatch]:
    """Return the last 20 batches that changed a job, newest first, with their audit entries."""
    rows = AuditedBatch.objects.using(using).filter(Q(done__contains=[job_id]))
    return list(rows.select_related("entry").defer("done", "refused").order_by("-at")[:20])
