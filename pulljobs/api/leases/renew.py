"""Route renew: a client renews the leases of jobs, and may report their progress.

Each job succeeds or fails by itself.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from pulljobs import pulling
from pulljobs.api.bodies import render_time
from pulljobs.api.leases.ack import find_held
from pulljobs.api.leases.bodies import (
    ItemStatus,
    RenewBody,
    RenewedBody,
    RenewedJobBody,
    ReportBody,
)
from pulljobs.api.leases.lease_view import LeaseView
from pulljobs.api.reading import read_body
from pulljobs.conf import settings
from pulljobs.engine.outcomes import Held
from pulljobs.models import Consumer
from pulljobs.storage import nodes, progress, protocol
from pulljobs.storage.progress import ReportedProgress


class RenewItem(NamedTuple):
    """Job of a renewal, with the id as the caller wrote it."""

    id: str
    held: Held | None
    """Job id and lease token, or None if the id in the request is no id of a job."""
    report: ReportedProgress | None = None


class RenewRequest(NamedTuple):
    """Parsed body of a renewal: the jobs, and the time to the new end of their leases."""

    items: list[RenewItem]
    lease_duration: timedelta | None
    """Time from now to the wanted end of the leases, or None for the consumer's lease duration."""


class RenewView(LeaseView[RenewRequest, RenewedBody]):
    largest_body = 256 * 1024

    def held_jobs(self, body: bytes) -> list[Held]:
        return [item.held for item in _read_items(read_body(RenewBody, body)) if item.held]

    def parse(self, consumer: Consumer, body: bytes) -> RenewRequest:
        given = read_body(RenewBody, body)
        seconds = given.get("Seconds")
        lease_duration = None if seconds is None else timedelta(seconds=seconds)
        return RenewRequest(_read_items(given), lease_duration)

    @classmethod
    def do(cls, consumer: Consumer, asked: RenewRequest) -> RenewedBody:
        return {"Results": renew(consumer, *asked)}

    async def finish(self, consumer: Consumer, done: RenewedBody) -> RenewedBody:
        return done


def renew(
    consumer: Consumer, items: list[RenewItem], lease_duration: timedelta | None
) -> list[RenewedJobBody]:
    """Renew the leases of the consumer's jobs, and return the result of each item, in their order.

    If `lease_duration` is None, that of the consumer counts. The reported progress is written for
    the jobs whose leases were renewed.
    """
    using = settings().DATABASE
    named = [item.held.job_id for item in items if item.held]
    owned = protocol.jobs_of(using, consumer.pk, named)
    held = {item.held for item in items if item.held and item.held.job_id in owned}
    untils = pulling.renew(sorted(held), lease_duration)
    reports = {
        item.held: item.report
        for item in items
        if item.report is not None and item.held is not None and item.held in untils
    }
    if reports:
        progress.write_reports(using, {each: reports[each] for each in sorted(reports)})
    missing = held - untils.keys()
    locked = pulling.still_held(sorted(missing)) if missing else set()
    now = nodes.clock(using)
    return [
        _render_renewed(item, untils[item.held], now)
        if item.held in untils
        else {"ID": item.id, "Status": _find_failure(item, owned, locked)}
        for item in items
    ]


def _read_items(given: RenewBody) -> list[RenewItem]:
    return [
        RenewItem(item["ID"], find_held(item), _read_report(item.get("Progress")))
        for item in given.get("Leases") or ()
    ]


def _read_report(given: ReportBody | None) -> ReportedProgress | None:
    if given is None:
        return None
    return progress.make_report(given["Done"], given.get("Total"), given.get("Note") or "")


def _render_renewed(item: RenewItem, until: datetime, now: datetime) -> RenewedJobBody:
    remaining = round(max((until - now).total_seconds(), 0.0), 3)
    return {
        "ID": item.id,
        "Status": ItemStatus.OK,
        "LeaseExpiresAt": render_time(until),
        "RemainingSeconds": remaining,
    }


def _find_failure(item: RenewItem, owned: set[int], locked: set[Held]) -> ItemStatus:
    if item.held in locked:
        return ItemStatus.LOCKED
    is_owned = item.held is not None and item.held.job_id in owned
    return ItemStatus.LEASE_LOST if is_owned else ItemStatus.NOT_FOUND
