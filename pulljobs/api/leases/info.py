"""GET info: how the consumer stands, and the limits that a client has to respect."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import ids
from pulljobs.api import problems
from pulljobs.api.authentication import caller
from pulljobs.api.base_views import ProblemsTold, PullConsumerView
from pulljobs.api.times import rfc_3339
from pulljobs.conf import settings
from pulljobs.models import Consumer
from pulljobs.storage.status import StatusRow, read_status


class Info(ProblemsTold, PullConsumerView):
    def get(self, request: Request, **names: str) -> Response:
        using = settings().DATABASE
        consumer = Consumer.objects.using(using).filter(pk=caller(request).pk).first()
        now = None if consumer is None else read_status(using, consumer.pk)
        if consumer is None or now is None:
            raise problems.consumer_deleted()
        return Response({**_counts(now), **_limits(consumer), "Now": rfc_3339(now.now)})


def _counts(now: StatusRow) -> dict[str, Any]:
    floor = now.settled_up_to
    return {
        "NumQueued": now.ready,
        "NumDelayed": now.delayed,
        "NumBlocked": now.blocked,
        "NumInFlight": now.in_flight,
        "NumRedelivered": now.redelivered,
        "NumWaiting": now.waiting,
        "NumDead": now.dead,
        "OldestQueuedSeconds": now.oldest_ready_seconds,
        "Delivered": now.delivered,
        "AckFloor": None if floor is None else ids.encode(floor),
        "Capped": now.is_capped,
        "Paused": now.is_paused,
        "PauseUntil": rfc_3339(now.paused_until) if now.paused_until and now.is_paused else None,
    }


def _limits(consumer: Consumer) -> dict[str, Any]:
    ours = settings()
    return {
        "MaxBatch": ours.MAX_BATCH,
        "MaxExpires": ours.MAX_EXPIRES.total_seconds(),
        "MaxInFlight": consumer.max_in_flight,
        "MaxWaiting": consumer.max_waiting,
        "MaxPayloadBytes": ours.MAX_PAYLOAD_BYTES,
        "LeaseSeconds": consumer.lease_duration.total_seconds(),
        "MaxLeaseSeconds": max(consumer.lease_duration, ours.MAX_LEASE).total_seconds(),
        "MaxRetries": consumer.retries,
        "MaxDeliveries": consumer.max_deliveries,
        "RetryDelays": consumer.retry_delays,
    }
