"""Route /channel/{c}/consumer/{k}/queued-jobs: consumers list queued jobs, operators purge them."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import auditing, ids, operating
from pulljobs.api import error_answers, exceptions, reaping
from pulljobs.api.authentication import caller, user_authenticators, user_name
from pulljobs.api.base_views import PullConsumerView, consumer_of
from pulljobs.api.broker import listing
from pulljobs.api.broker.bodies import QueuedJobBody, QueuedJobsBody
from pulljobs.api.broker.links import link_here, read_limit
from pulljobs.api.broker.resources import payload_fields
from pulljobs.api.leases.bodies import PurgedBody
from pulljobs.api.permissions import ModelPermission
from pulljobs.conf import settings
from pulljobs.states import Event
from pulljobs.storage import messages
from pulljobs.storage.protocol import Place, WaitingJob
from pulljobs.storage.rows import StoredMessage

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PLACE: Final = re.compile(r"(-?[0-9]{1,5})\.([0-9]{1,18})\.([0-9a-v]{20})")
"""Position of a job as a link has it: its priority, due time in microseconds, and id."""


class QueuedJobs(PullConsumerView):
    """View with which a consumer lists its queued jobs (GET) and an operator purges them (DELETE).

    A consumer sends its tokens. An operator is a user of Django, and a purge kills the queued jobs.
    """

    needs = {"DELETE": ["pulljobs.change_consumer", "pulljobs.delete_job"]}

    def get_authenticators(self) -> list[Any]:
        return list(user_authenticators()) if self._purges else super().get_authenticators()

    def get_permissions(self) -> list[Any]:
        return [ModelPermission()] if self._purges else list(super().get_permissions())

    def get_exception_handler(self) -> Callable[..., Any]:
        return error_answers.as_problem if self._purges else super().get_exception_handler()

    def get(self, request: Request, **names: str) -> Response:
        reaping.ensure_reaping()  # Or a client that only lists would wait for ever after a restart.
        consumer, limit, after = caller(request).pk, read_limit(request), _read_after(request)
        # A job more than asked for shows that there is a next page.
        jobs = listing.queued(consumer, limit + 1, after)
        page, rest = jobs[:limit], jobs[limit:]
        body: QueuedJobsBody = {"Result": _with_messages(page)}
        response = Response(body)
        if page and rest:
            response["Link"] = _next_link(request, limit, page[-1].place)
        return response

    def delete(self, request: Request, **names: str) -> Response:
        consumer = consumer_of(names)
        subject = f"all queued jobs of {consumer.describe()}, purged"
        steps = auditing.noting(
            operating.purging(consumer), Event.KILL, by=user_name(request), subject=subject
        )
        body: PurgedBody = {"Purged": sum(steps)}
        return Response(body)

    @property
    def _purges(self) -> bool:
        return self.request is not None and self.request.method == "DELETE"


def _read_after(request: Request) -> Place | None:
    """Return the position of the last job on the page before, or None for the first page.

    Raise a refusal (400) if the parameter `next` is no position.
    """
    given = request.query_params.get("next", "")
    if not given:
        return None
    try:
        return _parse_place(given)
    except (ValueError, OverflowError) as error:
        raise exceptions.bad_page() from error


def _parse_place(given: str) -> Place:
    parts = _PLACE.fullmatch(given)
    if parts is None:
        raise ValueError(given)
    available_at = _EPOCH + timedelta(microseconds=int(parts[2]))
    return Place(int(parts[1]), available_at, ids.decode(parts[3]))


def _next_link(request: Request, limit: int, last: Place) -> str:
    """Return the Link header with the path of the next page, which begins after the job `last`."""
    microseconds = (last.available_at - _EPOCH) // timedelta(microseconds=1)
    place = f"{last.priority}.{microseconds}.{ids.encode(last.id)}"
    return f'<{link_here(request, {"limit": limit, "next": place})}>; rel="next"'


def _with_messages(jobs: list[WaitingJob]) -> list[QueuedJobBody]:
    """Render jobs with their messages. Omit jobs whose message was dropped in the meantime."""
    if not jobs:
        return []
    stored = messages.read_messages(settings().DATABASE, [job.message_id for job in jobs])
    return [_render_job(job, stored[job.message_id]) for job in jobs if job.message_id in stored]


def _render_job(job: WaitingJob, message: StoredMessage) -> QueuedJobBody:
    timeout = job.incremental_timeout or timedelta()
    return {
        "ID": ids.encode(job.id),
        "Priority": job.priority,
        "IncrementalTimeout": int(timeout.total_seconds()),
        "Message": {
            "MessageID": message.client_message_id or ids.encode(job.message_id),
            **payload_fields(message.payload),
            "Headers": message.headers,
            "ContentType": message.content_type,
        },
    }
