"""/channel/{c}/consumer/{k}/dlq: the DEAD jobs of a consumer, listed, queued again or deleted."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import ids, operating
from pulljobs.api import exceptions, raw_bodies, resources
from pulljobs.api.authentication import DeleterTokens, caller, shows, users
from pulljobs.api.base_views import UserView, consumer_of
from pulljobs.api.broker import cursors
from pulljobs.api.broker.cursors import Mark
from pulljobs.api.permissions import ModelPermission
from pulljobs.conf import settings
from pulljobs.storage import published


class DeadLetters(UserView):
    """Users list; the consumer's token, in a form, queues again; both tokens delete."""

    needs = {"GET": ["pulljobs.view_job"]}

    def get_authenticators(self) -> list[Any]:
        method = self.request.method if self.request is not None else None
        if method == "GET":
            return list(users())
        return [DeleterTokens()] if method == "DELETE" else []

    def get_permissions(self) -> list[Any]:
        return [ModelPermission()] if self.request.method == "GET" else []

    def get(self, request: Request, **names: str) -> Response:
        using, consumer = settings().DATABASE, consumer_of(names)
        page = published.dead(using, consumer, cursors.cut(request))
        messages = published.heads(using, [one.message_id for one in page])
        marks = [Mark(one.job_id, ids.time_of(one.job_id)) for one in page]
        return Response(
            {
                "DeadJobs": [
                    resources.dead_job(request, one, messages.get(one.message_id)) for one in page
                ],
                "Pages": cursors.pages(request, marks),
            }
        )

    def post(self, request: Request, **names: str) -> Response:
        form, consumer = raw_bodies.form(request), consumer_of(names)
        if not shows(consumer, form.get("requeue", "")):
            raise exceptions.wrong_requeue()
        operating.redrive_all(consumer)
        return Response(status=202)

    def delete(self, request: Request, **names: str) -> Response:
        return Response({"deletedCount": operating.delete_exhausted(caller(request))})
