"""POST job: a consumer takes a job by its id, and settles it.

Every write names the lease it is made under. Without a token in the request that is the lease seen
a moment before, so a request that was overtaken changes nothing.
"""

from typing import Final
from uuid import UUID

from django.utils.crypto import constant_time_compare
from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import emission, ids, pulling
from pulljobs.api import exceptions, raw_bodies, serializers, times
from pulljobs.api.authentication import caller
from pulljobs.api.base_views import PullConsumerView
from pulljobs.api.headers import LEASE_TOKEN
from pulljobs.api.permissions import HolderOrPullConsumer
from pulljobs.api.serializers import Transition
from pulljobs.conf import settings
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.models import Consumer, Lease
from pulljobs.states import TRANSITIONS, Event
from pulljobs.storage import protocol
from pulljobs.storage.protocol import AddressedJob
from pulljobs.storage.rows import Refusal, Taken

LEASE_EXPIRES_AT: Final = "X-Broker-Lease-Expires-At"
LARGEST_BODY: Final = 16 * 1024
ADVICE: Final = "send NextState and nothing else"
ERROR: Final = "The consumer gave it up (job POST)."

EVENTS: Final = {
    (source, TRANSITIONS[event].target): event
    for event in (Event.CLAIM, Event.REVIVE, Event.DELIVER, Event.REJECT)
    for source in TRANSITIONS[event].sources
}
"""What the protocol may do, by the state a job is in and the one asked for."""


class JobTransition(PullConsumerView):
    permission_classes = [HolderOrPullConsumer]

    def post(self, request: Request, job: str, **names: str) -> Response:
        consumer = caller(request)
        found = find(consumer, job)
        asked = serializers.transition(raw_bodies.read(request, LARGEST_BODY, ADVICE))
        fence = request.headers.get(LEASE_TOKEN)
        event = _event(found, asked, fence)
        if event is None:
            return Response(status=202)
        if event in (Event.DELIVER, Event.REJECT):
            return _settle(consumer, found, event, fenced=fence is not None)
        return _take(consumer, found, asked)


def find(consumer: Consumer, xid: str) -> AddressedJob:
    """The job of this consumer; 404 if there is none, 401 if it is another's."""
    try:
        found = protocol.addressed(settings().DATABASE, ids.decode(xid))
    except ValueError as error:
        raise exceptions.unknown_job() from error
    if found is None:
        raise exceptions.unknown_job()
    if found.consumer_id != consumer.pk:
        raise exceptions.job_of_another()
    return found


def _event(found: AddressedJob, asked: Transition, fence: str | None) -> Event | None:
    """What is to happen; None: the job is in that state already."""
    if fence is not None and not _is_lease_of(found, fence):
        raise exceptions.lease_lost()
    event = EVENTS.get((found.state, asked.target))
    if asked.incremental_timeout and event not in (Event.CLAIM, Event.REVIVE):
        raise exceptions.needless_timeout()
    if event is None and found.state != asked.target:
        raise exceptions.illegal(found.state, asked.target)
    return event


def _is_lease_of(found: AddressedJob, fence: str) -> bool:
    return found.lease_token is not None and constant_time_compare(
        fence.lower(), str(found.lease_token)
    )


def _take(consumer: Consumer, found: AddressedJob, asked: Transition) -> Response:
    taken = pulling.take(
        consumer, found.id, found.state, incremental_timeout=asked.incremental_timeout
    )
    if isinstance(taken, Refusal):
        raise exceptions.not_given(taken)
    if taken is None:
        return _outrun(consumer, found, asked)
    return Response(status=202, headers=_lease(taken))


def _outrun(consumer: Consumer, found: AddressedJob, asked: Transition) -> Response:
    """Somebody else was quicker: the answer of one who comes after that one."""
    if _event(find(consumer, ids.encode(found.id)), asked, None) is None:
        return Response(status=202)
    raise exceptions.overtaken()


def _lease(taken: Taken) -> dict[str, str]:
    until = times.rfc_3339(taken.leased_until)
    return {LEASE_TOKEN: str(taken.lease_token), LEASE_EXPIRES_AT: until}


def _settle(consumer: Consumer, found: AddressedJob, event: Event, *, fenced: bool) -> Response:
    if not fenced and found.via != Lease.Via.POST:
        raise exceptions.held_elsewhere()
    held = Held(found.id, found.lease_token or UUID(int=0))
    outcome = outcomes.deliver(held) if event == Event.DELIVER else outcomes.reject(held, ERROR)
    if found.id not in pulling.finish([outcome], emission.paths_of(consumer, [outcome])).states:
        raise exceptions.overtaken()
    return Response(status=202)
