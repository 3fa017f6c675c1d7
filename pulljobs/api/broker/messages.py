"""Routes with which users read the messages and scheduled messages of a channel.

/channel/{c}/messages, /channel/{c}/message/{m}, /channel/{c}/messages-status,
/channel/{c}/scheduled-messages and /channel/{c}/scheduled-message/{m}.
"""

from collections.abc import Iterator
from typing import Final

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import ids
from pulljobs.api import exceptions
from pulljobs.api.authentication import find_row
from pulljobs.api.base_views import UserView, channel_of
from pulljobs.api.bodies import render_time
from pulljobs.api.broker import resources
from pulljobs.api.broker.bodies import (
    ListingBody,
    MessageCountBody,
    MessageCountsBody,
    ScheduledListingBody,
)
from pulljobs.api.broker.links import CursorRow, add_query, link_in_channel, link_pages, read_cut
from pulljobs.api.broker.resources import ACKNOWLEDGED, DISPATCHED
from pulljobs.api.permissions import is_permitted
from pulljobs.conf import settings
from pulljobs.models import Channel
from pulljobs.storage import published, scheduled

NEEDS: Final = {"GET": ["pulljobs.view_message"]}
SCHEDULED_NEEDS: Final = {"GET": ["pulljobs.view_scheduledmessage"]}


class Messages(UserView):
    needs = NEEDS

    def get(self, request: Request, **names: str) -> Response:
        channel, cut = channel_of(names), read_cut(request)
        statuses = _read_statuses(request)
        page = []
        if not statuses or DISPATCHED in statuses:
            page = published.page(settings().DATABASE, channel.pk, cut)
        rows = [CursorRow(message.pk, message.published_at) for message in page]
        body: ListingBody = {
            "Result": [
                link_in_channel(request, "message", channel, message=resources.id_of(message))
                for message in page
            ],
            "Pages": link_pages(request, rows),
            "Links": None,
        }
        return Response(body)


class MessageView(UserView):
    needs = NEEDS

    def get(self, request: Request, **names: str) -> Response:
        using = settings().DATABASE
        message = published.find(using, channel_of(names).pk, names["message"])
        if message is None:
            raise exceptions.unknown_message()
        jobs = published.read_jobs(using, message.pk)
        return Response(resources.render_message(request, message, jobs))


class MessagesStatus(UserView):
    """View of the counts of a channel's messages by status. An unknown channel has no counts."""

    needs = NEEDS

    def get(self, request: Request, **names: str) -> Response:
        channel = find_row(Channel, names["channel"])
        none: MessageCountsBody = {"counts": {}}
        return Response(_count_messages(request, channel) if channel else none)


class ScheduledMessages(UserView):
    needs = SCHEDULED_NEEDS

    def get(self, request: Request, **names: str) -> Response:
        channel, cut = channel_of(names), read_cut(request)
        statuses = _read_statuses(request)
        chosen = statuses & {ACKNOWLEDGED, DISPATCHED}
        page = []
        if chosen or not statuses:
            is_published = DISPATCHED in chosen if len(chosen) == 1 else None
            page = scheduled.page(settings().DATABASE, channel.pk, cut, is_published)
        rows = [CursorRow(message.pk, ids.time_of(message.pk)) for message in page]
        body: ScheduledListingBody = {
            "result": [
                link_in_channel(
                    request, "scheduled-message", channel, message=message.client_message_id
                )
                for message in page
            ],
            "pages": link_pages(request, rows),
        }
        return Response(body)


class ScheduledMessageView(UserView):
    needs = SCHEDULED_NEEDS

    def get(self, request: Request, **names: str) -> Response:
        channel = channel_of(names)
        message = scheduled.find(settings().DATABASE, channel.pk, names["message"])
        if message is None:
            raise exceptions.unknown_message()
        with_content = is_permitted(request, "pulljobs.view_message")
        return Response(resources.render_scheduled_message(message, with_content=with_content))


def _read_statuses(request: Request) -> set[int]:
    """Return the numbers in the query parameters `status`. If there are none, all rows match."""
    given = request.query_params.getlist("status")
    return {int(text) for text in given if text.isdecimal() and len(text) < 10}


def _count_messages(request: Request, channel: Channel) -> MessageCountsBody:
    waiting = scheduled.waiting(settings().DATABASE, channel.pk)
    body: MessageCountsBody = {"counts": dict(_list_counts(request, channel, waiting))}
    if waiting.next_at:
        body["next_scheduled_message_at"] = render_time(waiting.next_at)
    return body


def _list_counts(
    request: Request, channel: Channel, waiting: scheduled.Waiting
) -> Iterator[tuple[str, MessageCountBody]]:
    published_count = published.count(settings().DATABASE, channel.pk)
    messages = link_in_channel(request, "messages", channel)
    later = link_in_channel(request, "scheduled-messages", channel)
    for name, count, url, status in (
        ("DISPATCHED", published_count, messages, DISPATCHED),
        ("ACKNOWLEDGED", waiting.due, later, ACKNOWLEDGED),
        ("SCHEDULED_SCHEDULED", waiting.scheduled, later, ACKNOWLEDGED),
        ("SCHEDULED_DISPATCHED", waiting.dispatched, later, DISPATCHED),
    ):
        if count:
            yield name, _render_count(count, add_query(url, {"status": status}))


def _render_count(count: int, url: str) -> MessageCountBody:
    if count > resources.CAP:
        return {"Count": resources.CAP, "Capped": True, "Links": {"messages": url}}
    return {"Count": count, "Links": {"messages": url}}
