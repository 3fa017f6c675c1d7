"""POST renew: a full new lease from now, a job each by itself."""

from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.http import HttpResponse, JsonResponse

from pulljobs import pulling
from pulljobs.api import pull_bodies
from pulljobs.api.pull_bodies import Item
from pulljobs.api.times import rfc_3339
from pulljobs.api.views.ack import Status
from pulljobs.api.views.leases import LeaseView
from pulljobs.conf import settings
from pulljobs.models import Consumer
from pulljobs.storage import nodes, protocol


class RenewView(LeaseView):
    largest_body = 256 * 1024

    async def answer(self, consumer: Consumer, body: bytes) -> HttpResponse:
        items, lease = pull_bodies.leases(pull_bodies.fields(body))
        renewed = await self.on_thread(partial(renew, consumer, items, lease))
        return JsonResponse({"Results": renewed})


def renew(consumer: Consumer, items: list[Item], lease: timedelta | None) -> list[dict[str, Any]]:
    using = settings().DATABASE
    theirs = protocol.jobs_of(using, consumer.pk, [item.held.job_id for item in items if item.held])
    held = {item.held for item in items if item.held and item.held.job_id in theirs}
    untils = pulling.renew(sorted(held), lease)
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
