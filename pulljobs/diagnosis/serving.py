"""Who serves a consumer: what living nodes say of themselves, and who waits or holds."""

from datetime import timedelta
from typing import Any, Final

from django.db.models import F, Q
from django.db.models.functions import Now

from pulljobs.conf import settings
from pulljobs.models import Consumer, Lease, Node, PullWaiter

MISSED_BEATS: Final = 3


def heartbeat_limit() -> timedelta:
    """The age of a heartbeat at which its node is taken for gone."""
    return MISSED_BEATS * settings().HEARTBEAT_INTERVAL


def living() -> list[Node]:
    rows = Node.objects.using(settings().DATABASE).filter(stopped_at=None)
    return list(rows.filter(heartbeat_at__gt=Now() - heartbeat_limit()))


def gone() -> list[Node]:
    """Those that ended without a word, of the last day."""
    rows = Node.objects.using(settings().DATABASE).filter(stopped_at=None)
    limit = heartbeat_limit()
    return list(
        rows.filter(heartbeat_at__lte=Now() - limit, heartbeat_at__gt=Now() - timedelta(days=1))
    )


def circuits(nodes: list[Node], place: str) -> dict[str, Any]:
    """What nodes hold back that consumer, by the node's name."""
    return {
        node.name: circuit
        for node in nodes
        if (circuit := node.report.get("circuits", {}).get(place)) is not None
    }


def is_served(consumer: Consumer, nodes: list[Node]) -> bool:
    """Whether a worker says so, a pull waits, or somebody holds jobs of it."""
    place = f"{consumer.channel.name}/{consumer.name}"
    if any(place in node.report.get("serves", ()) for node in nodes):
        return True
    using = settings().DATABASE
    waiters = PullWaiter.objects.using(using).filter(
        consumer_id=consumer.pk, waiting_until__gt=Now()
    )
    held = Lease.objects.using(using).filter(consumer_id=consumer.pk, leased_until__gt=Now())
    return waiters.exists() or held.exists()


def paused() -> list[Consumer]:
    """Consumers that are paused, by themselves or with their channel."""
    by_itself, with_channel = Q(paused_until__gt=Now()), Q(channel__paused_until__gt=Now())
    rows = Consumer.objects.using(settings().DATABASE).filter(
        by_itself | with_channel, deleted_at=None
    )
    return list(rows.select_related("channel").order_by(F("channel__name"), F("name")))
