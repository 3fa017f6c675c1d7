"""Routes info and pause: counts and limits of a consumer, and pauses by operators."""

from datetime import datetime
from typing import Final

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import auditing, ids, operating
from pulljobs.api import exceptions, raw_bodies
from pulljobs.api.authentication import caller, user_name
from pulljobs.api.base_views import ProblemMixin, PullConsumerView, UserView, consumer_of
from pulljobs.api.bodies import describe, fields_of, parse_time, render_time
from pulljobs.api.leases.bodies import InfoBody, PauseBody, PausedBody
from pulljobs.api.reading import read_body
from pulljobs.conf import settings
from pulljobs.models import Consumer
from pulljobs.storage.status import StatusRow, read_status

LARGEST_BODY: Final = 1024


class InfoView(ProblemMixin, PullConsumerView):
    """View with which a consumer reads the counts of its jobs and the limits for its clients."""

    def get(self, request: Request, **names: str) -> Response:
        using = settings().DATABASE
        consumer = Consumer.objects.using(using).filter(pk=caller(request).pk).first()
        status = None if consumer is None else read_status(using, consumer.pk)
        if consumer is None or status is None:
            raise exceptions.consumer_deleted()
        return Response(_render_info(consumer, status))


class PauseView(ProblemMixin, UserView):
    """View with which an operator pauses a consumer until a time, or ends its pause."""

    needs = {"POST": ["pulljobs.change_consumer"]}

    def post(self, request: Request, **names: str) -> Response:
        raw_bodies.refuse_foreign_form(request)
        consumer = consumer_of(names)
        until = _read_until(
            raw_bodies.read_decompressed(
                request._request, LARGEST_BODY, "send Until and nothing else"
            )
        )
        operating.pause(consumer, until)
        auditing.note_pause(consumer, until, by=user_name(request))
        body: PausedBody = {"PauseUntil": None if until is None else render_time(until)}
        return Response(body)


def _render_info(consumer: Consumer, status: StatusRow) -> InfoBody:
    limits = settings()
    settled_up_to = status.settled_up_to
    paused_until = status.paused_until if status.is_paused else None
    return {
        "NumQueued": status.ready,
        "NumDelayed": status.delayed,
        "NumBlocked": status.blocked,
        "NumInFlight": status.in_flight,
        "NumRedelivered": status.redelivered,
        "NumWaiting": status.waiting,
        "NumDead": status.dead,
        "OldestQueuedSeconds": status.oldest_ready_seconds,
        "Delivered": status.delivered,
        "AckFloor": None if settled_up_to is None else ids.encode(settled_up_to),
        "Capped": status.is_capped,
        "Paused": status.is_paused,
        "PauseUntil": render_time(paused_until) if paused_until else None,
        "MaxBatch": limits.MAX_BATCH,
        "MaxExpires": limits.MAX_EXPIRES.total_seconds(),
        "MaxInFlight": consumer.max_in_flight,
        "Rate": consumer.rate or None,
        "RateBurst": consumer.rate_burst,
        "RateWindow": consumer.rate_window,
        "LimitGroup": consumer.limit_group.name if consumer.limit_group else None,
        "MaxInFlightPerKey": consumer.max_in_flight_per_key,
        "RatePerKey": consumer.rate_per_key,
        "FairByKey": consumer.fair_by_key,
        "MaxWaiting": consumer.max_waiting,
        "MaxPayloadBytes": limits.MAX_PAYLOAD_BYTES,
        "LeaseSeconds": consumer.lease_duration.total_seconds(),
        "MaxLeaseSeconds": max(consumer.lease_duration, limits.MAX_LEASE).total_seconds(),
        "MaxRetries": consumer.retries,
        "MaxDeliveries": consumer.max_deliveries,
        "RetryDelays": consumer.retry_delays,
        "Now": render_time(status.now),
    }


def _read_until(body: bytes) -> datetime | None:
    given = read_body(PauseBody, body).get("Until")
    if given is None:
        return None
    until = parse_time(given)
    try:
        operating.check_pause(until)
    except ValueError as error:
        [field] = fields_of(PauseBody)
        raise exceptions.bad_body(f"Until {describe(field)}") from error
    return until
