"""GET queued-jobs: what waits, without taking it."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import listing
from pulljobs.api import paging
from pulljobs.api.authentication import caller
from pulljobs.api.serializers import queued_job
from pulljobs.api.views.protocol import PullConsumerView
from pulljobs.conf import settings
from pulljobs.storage import messages
from pulljobs.storage.protocol import QueuedJob


class QueuedJobs(PullConsumerView):
    def get(self, request: Request, **names: str) -> Response:
        consumer, limit, after = caller(request).pk, paging.limit(request), paging.after(request)
        # One more than asked for tells whether there is a next page.
        found = listing.queued(consumer, limit + 1, after)
        page, rest = found[:limit], found[limit:]
        response = Response({"Result": _with_messages(page)})
        if page and rest:
            response["Link"] = paging.link(request, limit, page[-1].place)
        return response


def _with_messages(jobs: list[QueuedJob]) -> list[dict[str, Any]]:
    if not jobs:
        return []
    read = messages.read(settings().DATABASE, [job.message_id for job in jobs])
    # One that was settled since, its message dropped with its day, is not shown.
    return [queued_job(job, read[job.message_id]) for job in jobs if job.message_id in read]
