"""/channel/{c}/consumer/{k}/job/{j}: look at it, move it, delete it once it is dead for good."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import ids, operating
from pulljobs.api import exceptions, resources
from pulljobs.api.authentication import DeleterTokens, caller
from pulljobs.api.base_views import PullConsumerView
from pulljobs.api.views.transition import JobTransition, find
from pulljobs.conf import settings
from pulljobs.storage import published


class JobView(JobTransition):
    def get_authenticators(self) -> list[Any]:
        deletes = self.request is not None and self.request.method == "DELETE"
        return [DeleterTokens()] if deletes else super().get_authenticators()

    def get_permissions(self) -> list[Any]:
        """Jobs of a push consumer may be deleted."""
        return [] if self.request.method == "DELETE" else list(super().get_permissions())

    def get(self, request: Request, job: str, **names: str) -> Response:
        using = settings().DATABASE
        found = find(caller(request), job)
        standing = published.standing(using, found.id)
        if standing is None:
            raise exceptions.unknown_job()
        message = published.heads(using, [standing.message_id]).get(standing.message_id)
        return Response(resources.job(request, standing, message))

    def delete(self, request: Request, job: str, **names: str) -> Response:
        """Another's job is answered as one that is not there."""
        try:
            deleted = operating.delete_exhausted(caller(request), ids.decode(job))
        except ValueError as error:
            raise exceptions.not_deletable() from error
        if not deleted:
            raise exceptions.not_deletable()
        return Response(status=204)


class RequeueDeadJob(PullConsumerView):
    def post(self, request: Request, job: str, **names: str) -> Response:
        found = find(caller(request), job)
        if not operating.redrive([found.id]).done:
            raise exceptions.not_dead()
        return Response(status=202)
