"""GET lookup: where a channel's consumers can pull, for clients that discover."""

from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.db.models.functions import Now
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs.api.authentication import known_channel
from pulljobs.api.base_views import ProblemsTold, ProtocolView
from pulljobs.api.leases.long_poll.waiters import waiting_room
from pulljobs.conf import settings
from pulljobs.diagnosis import serving
from pulljobs.models import Channel, Consumer, Node


class ChannelToken(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[AnonymousUser, Channel]:
        return AnonymousUser(), known_channel(request.headers, request.GET.get("channel", ""))


class Lookup(ProblemsTold, ProtocolView):
    authentication_classes = [ChannelToken]

    def get(self, request: Request) -> Response:
        channel = request.auth
        here = request.build_absolute_uri(request.path.removesuffix("/lookup") or "/")
        waiting_room().reached_at(here)  # So that this process is found, too.
        addresses = sorted({settings().ADDRESS or here, *_addresses()})
        return Response(
            {
                "Addresses": addresses,
                "Consumers": [_consumer(one) for one in _consumers(channel)],
            }
        )


def _addresses() -> list[str]:
    """Of the API processes that live."""
    oldest = Now() - serving.heartbeat_limit()
    nodes = Node.objects.using(settings().DATABASE).filter(
        kind=Node.Kind.API, stopped_at=None, heartbeat_at__gt=oldest
    )
    return list(nodes.exclude(address="").values_list("address", flat=True).distinct()[:100])


def _consumers(channel: Any) -> list[Consumer]:
    rows = Consumer.objects.using(settings().DATABASE)
    return list(rows.filter(channel=channel, deleted_at=None).order_by("name")[:1000])


def _consumer(consumer: Consumer) -> dict[str, str]:
    return {"ID": consumer.name, "Name": consumer.title, "Type": consumer.type}
