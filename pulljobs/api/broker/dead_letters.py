"""Route /channel/{c}/consumer/{k}/dlq: list, requeue or delete the DEAD jobs of a consumer."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import ids, operating
from pulljobs.api import exceptions, raw_bodies
from pulljobs.api.authentication import DeleterTokens, caller, has_token, user_authenticators
from pulljobs.api.base_views import UserView, consumer_of
from pulljobs.api.broker.bodies import DeadJobsBody, DeletedBody, RequeueFormBody
from pulljobs.api.broker.forms import pick_form_fields
from pulljobs.api.broker.links import CursorRow, link_pages, read_cut
from pulljobs.api.broker.resources import render_dead_job
from pulljobs.api.permissions import ModelPermission
from pulljobs.conf import settings
from pulljobs.storage import published


class DeadLetters(UserView):
    """View that lists (GET), redrives (POST) or deletes (DELETE) a consumer's DEAD jobs.

    As in the protocol, each method authenticates in its own way: GET a user of Django, POST by the
    consumer's token in a form, DELETE by the tokens of channel and consumer in headers. DELETE
    keeps jobs with retries left.
    """

    needs = {"GET": ["pulljobs.view_job"]}

    def get_authenticators(self) -> list[Any]:
        method = self.request.method if self.request is not None else None
        if method == "GET":
            return list(user_authenticators())
        return [DeleterTokens()] if method == "DELETE" else []

    def get_permissions(self) -> list[Any]:
        return [ModelPermission()] if self.request.method == "GET" else []

    def get(self, request: Request, **names: str) -> Response:
        using, consumer = settings().DATABASE, consumer_of(names)
        page = published.dead(using, consumer, read_cut(request))
        messages = published.heads(using, [job.message_id for job in page])
        rows = [CursorRow(job.job_id, ids.time_of(job.job_id)) for job in page]
        body: DeadJobsBody = {
            "DeadJobs": [
                render_dead_job(request, job, messages.get(job.message_id)) for job in page
            ],
            "Pages": link_pages(request, rows),
        }
        return Response(body)

    def post(self, request: Request, **names: str) -> Response:
        form, consumer = raw_bodies.read_form(request), consumer_of(names)
        if not has_token(consumer, pick_form_fields(RequeueFormBody, form)["requeue"]):
            raise exceptions.wrong_requeue()
        operating.redrive_all(consumer)
        return Response(status=202)

    def delete(self, request: Request, **names: str) -> Response:
        body: DeletedBody = {"deletedCount": operating.delete_exhausted(caller(request))}
        return Response(body)
