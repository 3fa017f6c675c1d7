"""Rows of processes, with their heartbeats."""

from datetime import datetime, timedelta
from typing import Any, Final, cast
from uuid import UUID

from django.db.models.functions import Now

from pulljobs.models import Lease, Node, PullWaiter
from pulljobs.storage.statements import query

WAITS_KEPT: Final = timedelta(hours=1)


def register(
    using: str, node_id: UUID, name: str, *, kind: str = Node.Kind.WORKER, address: str = ""
) -> None:
    Node.objects.using(using).create(
        id=node_id,
        name=name[:255],
        kind=kind,
        address=address[:2000],
        started_at=Now(),
        heartbeat_at=Now(),
    )


def beat(
    using: str, node_id: UUID, report: dict[str, Any] | None = None, *, address: str | None = None
) -> None:
    """Record a heartbeat, with the report and the address of the process if they are given."""
    changes: dict[str, Any] = {} if report is None else {"report": report}
    if address is not None:
        changes["address"] = address[:2000]
    Node.objects.using(using).filter(id=node_id).update(heartbeat_at=Now(), **changes)


def stop(using: str, node_id: UUID) -> None:
    """Mark a process as stopped. Its row stays, because the archive names it."""
    PullWaiter.objects.using(using).filter(node_id=node_id).delete()
    Node.objects.using(using).filter(id=node_id).update(stopped_at=Now())


def forget(using: str, age: timedelta) -> None:
    """Delete nodes without a heartbeat for `age` that hold no lease."""
    held = Lease.objects.using(using).exclude(node_id=None).values("node_id")
    old = Node.objects.using(using).filter(heartbeat_at__lt=Now() - age)
    old.exclude(id__in=held).delete()


def forget_waits(using: str) -> None:
    """Delete waiters of processes that ended without removing them."""
    PullWaiter.objects.using(using).filter(waiting_until__lt=Now() - WAITS_KEPT).delete()


def clock(using: str) -> datetime:
    """Return the database's time."""
    [row] = query(using, "SELECT clock_timestamp() AS now")
    return cast("datetime", row.now)
