"""Routes of one job: /channel/{c}/consumer/{k}/job/{j} and its requeue-dead-job.

A POST to a job moves it to the state in its body. It changes nothing if another request has moved
the job in between: a claim names the state of the job as the server has just read it, a settlement
the lease token. A settlement without a token in the request is only for jobs that a job POST took.
"""

from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.utils.crypto import constant_time_compare
from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import emission, ids, operating, pulling
from pulljobs.api import exceptions, raw_bodies, reaping
from pulljobs.api.authentication import LEASE_TOKEN, DeleterTokens, caller
from pulljobs.api.base_views import PullConsumerView
from pulljobs.api.bodies import render_time
from pulljobs.api.broker import job_refusals, resources
from pulljobs.api.broker.bodies import TransitionBody
from pulljobs.api.permissions import HolderOrPullConsumer
from pulljobs.api.reading import read_fields, read_object
from pulljobs.conf import settings
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.models import Consumer, Lease
from pulljobs.states import TRANSITIONS, Event
from pulljobs.storage import progress, protocol, published
from pulljobs.storage.protocol import AddressedJob
from pulljobs.storage.rows import NotYet, Refusal, Taken

LEASE_EXPIRES_AT: Final = "X-Broker-Lease-Expires-At"
LARGEST_BODY: Final = 16 * 1024
ADVICE: Final = "send NextState and nothing else"
ERROR: Final = "The consumer rejected the job (job POST)."
NO_LEASE: Final = UUID(int=0)

EVENTS: Final = {
    (source, TRANSITIONS[event].target): event
    for event in (Event.CLAIM, Event.REVIVE, Event.DELIVER, Event.REJECT)
    for source in TRANSITIONS[event].sources
}
"""Event of a job POST, by the state of the job and the state that the caller asks for."""


class SingleJobView(PullConsumerView):
    """View with which a consumer reads one job, claims and settles it, or deletes it when DEAD."""

    permission_classes = [HolderOrPullConsumer]

    def get_authenticators(self) -> list[Any]:
        deletes = self.request is not None and self.request.method == "DELETE"
        return [DeleterTokens()] if deletes else super().get_authenticators()

    def get_permissions(self) -> list[Any]:
        """Return no permissions for DELETE, so that push consumers may delete their DEAD jobs."""
        return [] if self.request.method == "DELETE" else list(super().get_permissions())

    def get(self, request: Request, job: str, **names: str) -> Response:
        using = settings().DATABASE
        message_job = published.read_job(using, find_job(caller(request), job).id)
        if message_job is None:
            raise job_refusals.unknown_job()
        message = published.heads(using, [message_job.message_id]).get(message_job.message_id)
        reported = progress.find(using, message_job.job_id)
        return Response(resources.render_job(request, message_job, message, reported))

    def post(self, request: Request, job: str, **names: str) -> Response:
        consumer = caller(request)
        addressed = find_job(consumer, job)
        body = raw_bodies.read_decompressed(request._request, LARGEST_BODY, ADVICE)
        asked = _read_transition(body)
        lease_token = request.headers.get(LEASE_TOKEN)
        event = _find_event(addressed, asked, lease_token)
        if event is None:
            return Response(status=202)
        if event in (Event.DELIVER, Event.REJECT):
            return _settle(consumer, addressed, event, asked, lease_token)
        return _take(consumer, addressed, asked)

    def delete(self, request: Request, job: str, **names: str) -> Response:
        """Delete a DEAD job whose retries are used up. Refuse any other job with 404."""
        try:
            deleted = operating.delete_exhausted(caller(request), ids.decode(job))
        except ValueError as error:
            raise job_refusals.not_deletable() from error
        if not deleted:
            raise job_refusals.not_deletable()
        return Response(status=204)


class RequeueDeadJob(PullConsumerView):
    def post(self, request: Request, job: str, **names: str) -> Response:
        addressed = find_job(caller(request), job)
        if not operating.redrive([addressed.id]).done:
            raise job_refusals.not_dead()
        return Response(status=202)


def find_job(consumer: Consumer, xid: str) -> AddressedJob:
    """Return the live or DELIVERED job with this public id, with its state and lease token.

    Raise a refusal: 404 if there is none, 401 if it belongs to another consumer.
    """
    try:
        job = protocol.addressed(settings().DATABASE, ids.decode(xid))
    except ValueError as error:
        raise job_refusals.unknown_job() from error
    if job is None:
        raise job_refusals.unknown_job()
    if job.consumer_id != consumer.pk:
        raise job_refusals.job_of_another()
    return job


def _read_transition(body: bytes) -> TransitionBody:
    given = read_object(body, job_refusals.malformed)
    return read_fields(TransitionBody, given, job_refusals.malformed)


def _find_event(job: AddressedJob, asked: TransitionBody, lease_token: str | None) -> Event | None:
    """Return the event that moves a job to the state in the body, or None if it has that state.

    Raise a refusal if no event leads there, if the request has a lease token that is not the job's,
    or if the body has an IncrementalTimeout and the event neither claims nor revives the job.
    """
    if lease_token is not None and not _is_lease_of(job, lease_token):
        raise job_refusals.lease_lost()
    target = asked["NextState"]
    event = EVENTS.get((job.state, target))
    if asked.get("IncrementalTimeout") and event not in (Event.CLAIM, Event.REVIVE):
        raise job_refusals.needless_timeout()
    if event is None and job.state != target:
        raise job_refusals.illegal(job.state, target)
    return event


def _is_lease_of(job: AddressedJob, lease_token: str) -> bool:
    return job.lease_token is not None and constant_time_compare(
        lease_token.lower(), str(job.lease_token)
    )


def _take(consumer: Consumer, job: AddressedJob, asked: TransitionBody) -> Response:
    reaping.ensure_reaping()
    seconds = asked.get("IncrementalTimeout")
    timeout = timedelta(seconds=seconds) if seconds else None
    taken = pulling.take(consumer, job.id, job.state, incremental_timeout=timeout)
    if isinstance(taken, Refusal):
        raise job_refusals.not_taken(taken)
    if isinstance(taken, NotYet):
        raise job_refusals.not_yet(taken)
    if taken is None:
        return _answer_overtaken(consumer, job, asked, None)
    return Response(status=202, headers=_lease_headers(taken))


def _answer_overtaken(
    consumer: Consumer, job: AddressedJob, asked: TransitionBody, lease_token: str | None
) -> Response:
    """Answer a request whose write changed nothing, because another request was faster.

    The answer is a success if the job has the wanted state by now, else a refusal.
    """
    if _find_event(find_job(consumer, ids.encode(job.id)), asked, lease_token) is None:
        return Response(status=202)
    raise job_refusals.overtaken()


def _lease_headers(taken: Taken) -> dict[str, str]:
    until = render_time(taken.leased_until)
    return {LEASE_TOKEN: str(taken.lease_token), LEASE_EXPIRES_AT: until}


def _settle(
    consumer: Consumer,
    job: AddressedJob,
    event: Event,
    asked: TransitionBody,
    lease_token: str | None,
) -> Response:
    if lease_token is None and job.via != Lease.Via.POST:
        raise job_refusals.held_elsewhere()
    held = Held(job.id, job.lease_token or NO_LEASE)
    outcome = outcomes.deliver(held) if event == Event.DELIVER else outcomes.reject(held, ERROR)
    finished = pulling.finish([outcome], emission.names_by_job(consumer, [outcome]))
    if finished.locked:
        raise exceptions.row_locked()
    if job.id not in finished.states:
        return _answer_overtaken(consumer, job, asked, lease_token)
    return Response(status=202)
