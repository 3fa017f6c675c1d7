"""Actions of operators on schedules, each with an entry in the audit trail.

Admin, HTTP API and commands call these. Change and entry share a transaction. `by` is the name of
the operator.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import transaction

from pulljobs import auditing
from pulljobs.conf import settings
from pulljobs.models import AuditEntry
from pulljobs.publishing import Payload
from pulljobs.schedules import backfilling, editing
from pulljobs.schedules.models import Schedule, Slot
from pulljobs.schedules.rules import format_slot


def create(
    name: str, channel: str, payload: Payload = None, *, by: str, **options: Any
) -> Schedule:
    """Create a schedule, with the arguments and errors of `editing.create`."""
    with transaction.atomic(using=settings().DATABASE):
        row = editing.create(name, channel, payload, **options)
        note(AuditEntry.Act.CREATE, row.name, by=by)
    return row


def update(name: str, /, *, by: str, **options: Any) -> Schedule:
    """Change options of a schedule. The audit entry has their names, without values."""
    with transaction.atomic(using=settings().DATABASE):
        row = editing.update(name, **options)
        note_update(name, options, by=by)
    return row


def delete(name: str, *, by: str) -> None:
    """Delete a schedule. Messages and jobs that it published stay."""
    with transaction.atomic(using=settings().DATABASE):
        editing.delete(name)
        note(AuditEntry.Act.DELETE, name, by=by, done=0)


def pause(name: str, until: datetime | None, *, by: str) -> Schedule:
    """Pause a schedule, with the arguments and errors of `editing.pause`."""
    with transaction.atomic(using=settings().DATABASE):
        row = editing.pause(name, until)
        note(AuditEntry.Act.PAUSE, row.name, by=by, at=until)
    return row


def resume(name: str, *, by: str) -> Schedule:
    """End the pause of a schedule, if it is paused. Raise what `editing.resume` raises."""
    with transaction.atomic(using=settings().DATABASE):
        row = editing.resume(name)
        note(AuditEntry.Act.RESUME, row.name, by=by)
    return row


def fire_now(name: str, *, by: str, opened_at: datetime | None = None) -> Slot:
    """Publish the message of a schedule now, and return the record. See `backfilling.fire_now`."""
    with transaction.atomic(using=settings().DATABASE):
        slot = backfilling.fire_now(name, opened_at=opened_at)
        note(AuditEntry.Act.FIRE, name, by=by)
    return slot


def backfill(name: str, start: datetime, end: datetime, *, by: str) -> list[Slot]:
    """Fire past slots in [`start`, `end`), and return their records. See `backfilling.backfill`."""
    with transaction.atomic(using=settings().DATABASE):
        slots = backfilling.backfill(name, start, end)
        subject = f"{name}, {format_slot(start)} to {format_slot(end)}"
        note(AuditEntry.Act.BACKFILL, subject, by=by, done=len(slots))
    return slots


def note_update(name: str, options: Iterable[str], *, by: str) -> None:
    """Add the audit entry of a change, with the names of the changed options."""
    note(AuditEntry.Act.UPDATE, f"{name}: {', '.join(sorted(options))}", by=by)


def note(
    act: AuditEntry.Act, subject: str, *, by: str, at: datetime | None = None, done: int = 1
) -> None:
    """Add an audit entry about a schedule.

    `subject` begins with its name, `at` is the end of a pause, and `done` is the number of fired
    slots or changed schedules.
    """
    auditing.note(act, by=by, subject=f"schedule {subject}", at=at, done=done)
