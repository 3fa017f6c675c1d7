"""Actions of operators on batches, with their entries in the audit trail."""

from collections.abc import Iterator

from pulljobs import auditing, ids
from pulljobs.models import AuditEntry
from pulljobs.workflows.batches import acting, adding


def cancel(batch_id: int, *, by: str) -> int:
    """Cancel a batch and return how many members were killed. Raise UnknownBatch."""
    steps = acting.cancelling(acting.find(batch_id), by=by)
    return _note(steps, AuditEntry.Act.KILL, batch_id, by=by)


def redrive(batch_id: int, *, by: str) -> int:
    """Redrive the dead members of a batch and return their number. Raise UnknownBatch."""
    steps = acting.redriving(acting.find(batch_id))
    return _note(steps, AuditEntry.Act.REDRIVE, batch_id, by=by)


def close(batch_id: int, *, by: str) -> None:
    """Close a batch. Raise UnknownBatch."""
    adding.extend(batch_id).close()
    auditing.note(AuditEntry.Act.UPDATE, by=by, subject=_name(batch_id))


def _note(steps: Iterator[int], act: AuditEntry.Act, batch_id: int, *, by: str) -> int:
    return sum(auditing.noting(steps, act, by=by, subject=_name(batch_id)))


def _name(batch_id: int) -> str:
    return f"batch {ids.encode(batch_id)}"
