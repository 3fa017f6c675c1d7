"""queued-jobs: what waits, without taking it; for operators, the end of it."""

from collections.abc import Callable
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import auditing, operating
from pulljobs.api import exceptions, paging
from pulljobs.api.authentication import caller, user_name, users
from pulljobs.api.base_views import PullConsumerView, consumer_of
from pulljobs.api.broker import listing
from pulljobs.api.permissions import ModelPermission
from pulljobs.api.serializers import queued_job
from pulljobs.conf import settings
from pulljobs.states import Event
from pulljobs.storage import messages
from pulljobs.storage.protocol import WaitingJob


class QueuedJobs(PullConsumerView):
    """Consumers read by their tokens, operators purge as users."""

    needs = {"DELETE": ["pulljobs.change_consumer", "pulljobs.delete_job"]}

    def get_authenticators(self) -> list[Any]:
        return list(users()) if self._purges else super().get_authenticators()

    def get_permissions(self) -> list[Any]:
        return [ModelPermission()] if self._purges else list(super().get_permissions())

    def get_exception_handler(self) -> Callable[..., Any]:
        return exceptions.as_problem if self._purges else super().get_exception_handler()

    def get(self, request: Request, **names: str) -> Response:
        consumer, limit, after = caller(request).pk, paging.limit(request), paging.after(request)
        # One more than asked for tells whether there is a next page.
        found = listing.queued(consumer, limit + 1, after)
        page, rest = found[:limit], found[limit:]
        response = Response({"Result": _with_messages(page)})
        if page and rest:
            response["Link"] = paging.link(request, limit, page[-1].place)
        return response

    def delete(self, request: Request, **names: str) -> Response:
        consumer = consumer_of(names)
        steps = operating.purging(consumer)
        if by := user_name(request):
            subject = f"all that waits of {auditing.name_of(consumer)}, purged"
            steps = auditing.noting(steps, Event.KILL, by=by, subject=subject)
        return Response({"Purged": sum(steps)})

    @property
    def _purges(self) -> bool:
        return self.request is not None and self.request.method == "DELETE"


def _with_messages(jobs: list[WaitingJob]) -> list[dict[str, Any]]:
    if not jobs:
        return []
    read = messages.read(settings().DATABASE, [job.message_id for job in jobs])
    # One that was settled since, its message dropped with its day, is not shown.
    return [queued_job(job, read[job.message_id]) for job in jobs if job.message_id in read]
