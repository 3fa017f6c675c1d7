"""POST renew: a full new lease from now, a job each by itself."""

from datetime import datetime, timedelta
from typing import Any

from pulljobs import pulling
from pulljobs.api import pull_bodies
from pulljobs.api.leases.ack import Status
from pulljobs.api.leases.lease_view import LeaseView
from pulljobs.api.pull_bodies import Item
from pulljobs.api.times import rfc_3339
from pulljobs.conf import settings
from pulljobs.engine.outcomes import Held
from pulljobs.models import Consumer
from pulljobs.storage import nodes, protocol

Renewed = list[dict[str, Any]]


class RenewView(LeaseView[Renewed]):
    largest_body = 256 * 1024

    def named(self, body: bytes) -> list[Held]:
        items, _lease = pull_bodies.leases(pull_bodies.fields(body))
        return [item.held for item in items if item.held]

    def begin(self, consumer: Consumer, body: bytes) -> Renewed:
        return renew(consumer, *pull_bodies.leases(pull_bodies.fields(body)))

    async def finish(self, consumer: Consumer, begun: Renewed) -> dict[str, Any]:
        return {"Results": begun}


def renew(consumer: Consumer, items: list[Item], lease_duration: timedelta | None) -> Renewed:
    using = settings().DATABASE
    theirs = protocol.jobs_of(using, consumer.pk, [item.held.job_id for item in items if item.held])
    held = {item.held for item in items if item.held and item.held.job_id in theirs}
    untils = pulling.renew(sorted(held), lease_duration)
    now = nodes.clock(using)
    return [
        _told(item, untils[item.held], now)
        if item.held in untils
        else {"ID": item.id, "Status": _lost(item, theirs)}
        for item in items
    ]


def _told(item: Item, until: datetime, now: datetime) -> dict[str, Any]:
    remaining = round(max((until - now).total_seconds(), 0.0), 3)
    return {
        "ID": item.id,
        "Status": Status.OK,
        "LeaseExpiresAt": rfc_3339(until),
        "RemainingSeconds": remaining,
    }


def _lost(item: Item, theirs: set[int]) -> Status:
    known = item.held is not None and item.held.job_id in theirs
    return Status.LEASE_LOST if known else Status.NOT_FOUND
