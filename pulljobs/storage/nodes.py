"""Rows of nodes, the processes that claim jobs or serve the API, with their heartbeats."""

import json
from datetime import datetime, timedelta
from typing import Any, Final, cast
from uuid import UUID

from django.db.models.functions import Now

from pulljobs.models import Lease, Node, PullWaiter
from pulljobs.storage.statements import query, run

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
) -> bool:
    """Write the time of a node's heartbeat, and its report and address unless they are None.

    Return False, without waiting, if another transaction has the row locked.
    """
    params = {
        "node_id": node_id,
        "report": None if report is None else json.dumps(report),
        "address": None if address is None else address[:2000],
    }
    [row] = run(using, "beat", params)
    return not row.locked


def stop(using: str, node_id: UUID) -> None:
    """Mark a node as stopped and delete its waiters. Its row stays, as the archive refers to it.

    If another transaction has the row locked, the node is not marked. It only misses heartbeats.
    """
    run(using, "stop", {"node_id": node_id})


def forget(using: str, age: timedelta) -> None:
    """Delete the rows of nodes without a heartbeat for `age`, unless they hold a lease."""
    held = Lease.objects.using(using).exclude(node_id=None).values("node_id")
    old = Node.objects.using(using).filter(heartbeat_at__lt=Now() - age)
    old.exclude(id__in=held).delete()


def forget_waits(using: str) -> None:
    """Delete the rows of waiters an hour after their time is over: their processes crashed."""
    PullWaiter.objects.using(using).filter(waiting_until__lt=Now() - WAITS_KEPT).delete()


def clock(using: str) -> datetime:
    """Return the present time by the database's clock."""
    [row] = query(using, "SELECT clock_timestamp() AS now")
    return cast("datetime", row.now)


def server_start(using: str) -> datetime:
    """Return the time at which the PostgreSQL server started, to notice a restart or failover."""
    [row] = run(using, "server", {})
    return cast("datetime", row.started_at)
