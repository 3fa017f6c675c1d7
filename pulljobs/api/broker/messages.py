"""/channel/{c}/messages, /channel/{c}/message/{m}, /channel/{c}/messages-status"""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs.api import exceptions, resources, times
from pulljobs.api.authentication import find
from pulljobs.api.base_views import UserView, channel_of
from pulljobs.api.broker import cursors, links
from pulljobs.api.broker.cursors import Mark
from pulljobs.api.resources.messages import ACKNOWLEDGED, DISPATCHED
from pulljobs.conf import settings
from pulljobs.models import Channel
from pulljobs.storage import published, scheduled

NEEDS = {"GET": ["pulljobs.view_message"]}


class Messages(UserView):
    needs = NEEDS

    def get(self, request: Request, **names: str) -> Response:
        channel, cut = channel_of(names), cursors.cut(request)
        asked = statuses(request)
        page = []
        if not asked or DISPATCHED in asked:
            page = published.page(settings().DATABASE, channel.pk, cut)
        result = [
            links.to_channel(request, "message", channel, message=resources.id_of(one))
            for one in page
        ]
        pages = cursors.pages(request, [Mark(one.pk, one.published_at) for one in page])
        return Response({"Result": result, "Pages": pages, "Links": None})


class MessageView(UserView):
    needs = NEEDS

    def get(self, request: Request, **names: str) -> Response:
        using = settings().DATABASE
        message = published.find(using, channel_of(names).pk, names["message"])
        if message is None:
            raise exceptions.unknown_message()
        standings = published.standings(using, message.pk)
        return Response(resources.message(request, message, standings))


class MessagesStatus(UserView):
    """An unknown channel has none of any status."""

    needs = NEEDS

    def get(self, request: Request, **names: str) -> Response:
        channel = find(Channel, names["channel"])
        return Response(_counts(request, channel) if channel else {"counts": {}})


def statuses(request: Request) -> set[int]:
    """What is no number is ignored."""
    given = request.query_params.getlist("status")
    return {int(text) for text in given if text.isdecimal() and len(text) < 10}


def _counts(request: Request, channel: Channel) -> dict[str, Any]:
    using = settings().DATABASE
    messages = links.to_channel(request, "messages", channel)
    later = links.to_channel(request, "scheduled-messages", channel)
    waiting = scheduled.waiting(using, channel.pk)
    found = {
        "DISPATCHED": (published.count(using, channel.pk), messages, DISPATCHED),
        "ACKNOWLEDGED": (waiting.due, later, ACKNOWLEDGED),
        "SCHEDULED_SCHEDULED": (waiting.scheduled, later, ACKNOWLEDGED),
        "SCHEDULED_DISPATCHED": (waiting.dispatched, later, DISPATCHED),
    }
    counts = {
        name: {
            **resources.count(count),
            "Links": {"messages": links.with_query(url, {"status": status})},
        }
        for name, (count, url, status) in found.items()
        if count
    }
    next_at = waiting.next_at and {"next_scheduled_message_at": times.rfc_3339(waiting.next_at)}
    return {"counts": counts, **(next_at or {})}
