"""/channels, /channel/{c}"""

from collections.abc import Mapping
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs.api import resources
from pulljobs.api.base_views import UserView, channel_of
from pulljobs.api.broker import links, registry
from pulljobs.conf import settings
from pulljobs.models import Channel


class Channels(UserView):
    needs = registry.needs("channel")

    def get(self, request: Request) -> Response:
        rows = Channel.objects.using(settings().DATABASE)
        return registry.listed(request, rows, lambda row: links.to_channel(request, "channel", row))


class ChannelView(registry.PartyView):
    needs = registry.needs("channel")
    model = Channel

    def find(self, names: Mapping[str, str]) -> Channel:
        return channel_of(names)

    def key(self, names: Mapping[str, str]) -> dict[str, Any]:
        return {"name": names["channel"]}

    def show(self, request: Request, party: Channel, token: str | None) -> dict[str, Any]:
        return resources.channel(request, party, token)
