"""Rows of processes: registered at boot, kept alive by heartbeats, marked when they stop."""

from datetime import datetime
from typing import Any, cast
from uuid import UUID

from django.db import connections
from django.db.models.functions import Now

from pulljobs.models import Node, PullWaiter


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
    """With what the process says of itself; None: nothing new."""
    told: dict[str, Any] = {} if report is None else {"report": report}
    if address is not None:
        told["address"] = address[:2000]
    Node.objects.using(using).filter(id=node_id).update(heartbeat_at=Now(), **told)


def stop(using: str, node_id: UUID) -> None:
    """The process waits for nothing any more; its row stays, for the archive names it."""
    PullWaiter.objects.using(using).filter(node_id=node_id).delete()
    Node.objects.using(using).filter(id=node_id).update(stopped_at=Now())


def clock(using: str) -> datetime:
    """What time it is for the database."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cast("datetime", cursor.fetchone()[0])
