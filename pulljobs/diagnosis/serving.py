"""Processes that serve a consumer: living nodes, long polls and holders of leases."""

from datetime import timedelta
from typing import Any, Final

from django.db.models import F, Q
from django.db.models.functions import Now

from pulljobs.conf import settings
from pulljobs.models import Consumer, Lease, Node, PullWaiter

MISSED_BEATS: Final = 3


def heartbeat_limit() -> timedelta:
    """Return the age of a heartbeat at which its node counts as gone."""
    return MISSED_BEATS * settings().HEARTBEAT_INTERVAL


def living() -> list[Node]:
    """Return the nodes with a recent heartbeat."""
    rows = Node.objects.using(settings().DATABASE).filter(stopped_at=None)
    return list(rows.filter(heartbeat_at__gt=Now() - heartbeat_limit()))


def has_worker() -> bool:
    """Return True if a worker lives; its heartbeats are written by its reaper."""
    return any(node.kind == Node.Kind.WORKER for node in living())


def gone() -> list[Node]:
    """Return the nodes of the last day whose heartbeat ended without a stop."""
    rows = Node.objects.using(settings().DATABASE).filter(stopped_at=None)
    limit = heartbeat_limit()
    return list(
        rows.filter(heartbeat_at__lte=Now() - limit, heartbeat_at__gt=Now() - timedelta(days=1))
    )


def circuits(nodes: list[Node], path: str) -> dict[str, Any]:
    """Return the open circuits of a consumer (channel/consumer) by the names of the nodes."""
    return {
        node.name: circuit
        for node in nodes
        if (circuit := node.report.get("circuits", {}).get(path)) is not None
    }


def is_served(consumer: Consumer, nodes: list[Node]) -> bool:
    """Return True if a worker serves the consumer, a pull waits for it, or jobs of it are held."""
    path = f"{consumer.channel.name}/{consumer.name}"
    if any(path in node.report.get("serves", ()) for node in nodes):
        return True
    using = settings().DATABASE
    waiters = PullWaiter.objects.using(using).filter(
        consumer_id=consumer.pk, waiting_until__gt=Now()
    )
    held = Lease.objects.using(using).filter(consumer_id=consumer.pk, leased_until__gt=Now())
    return waiters.exists() or held.exists()


def paused() -> list[Consumer]:
    """Return consumers that are paused themselves or by their channel."""
    by_itself, with_channel = Q(paused_until__gt=Now()), Q(channel__paused_until__gt=Now())
    rows = Consumer.objects.using(settings().DATABASE).filter(
        by_itself | with_channel, deleted_at=None
    )
    return list(rows.select_related("channel").order_by(F("channel__name"), F("name")))
