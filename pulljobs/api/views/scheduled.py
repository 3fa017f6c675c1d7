"""/channel/{c}/scheduled-messages, /channel/{c}/scheduled-message/{m}"""

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import ids
from pulljobs.api import exceptions, resources
from pulljobs.api.base_views import UserView, channel_of
from pulljobs.api.broker import cursors, links
from pulljobs.api.broker.cursors import Mark
from pulljobs.api.broker.messages import statuses
from pulljobs.api.resources.messages import ACKNOWLEDGED, DISPATCHED
from pulljobs.conf import settings
from pulljobs.storage import scheduled

NEEDS = {"GET": ["pulljobs.view_scheduledmessage"]}


class ScheduledMessages(UserView):
    needs = NEEDS

    def get(self, request: Request, **names: str) -> Response:
        channel, cut, asked = channel_of(names), cursors.cut(request), statuses(request)
        dispatched = {status == DISPATCHED for status in asked & {ACKNOWLEDGED, DISPATCHED}}
        page = []
        if dispatched or not asked:
            page = scheduled.page(settings().DATABASE, channel.pk, cut, dispatched or {True, False})
        result = [
            links.to_channel(request, "scheduled-message", channel, message=one.client_message_id)
            for one in page
        ]
        pages = cursors.pages(request, [Mark(one.pk, ids.time_of(one.pk)) for one in page])
        return Response({"result": result, "pages": pages})


class ScheduledMessageView(UserView):
    needs = NEEDS

    def get(self, request: Request, **names: str) -> Response:
        channel = channel_of(names)
        found = scheduled.find(settings().DATABASE, channel.pk, names["message"])
        if found is None:
            raise exceptions.unknown_message()
        return Response(resources.scheduled_message(found))
