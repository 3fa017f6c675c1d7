"""Routes with the state of the whole broker: /_status, /job-status, /dlq-status and /metrics.

Answers in JSON count jobs up to 10,000, so that they are fast.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import metrics
from pulljobs.api import exceptions
from pulljobs.api.base_views import UserView
from pulljobs.api.bodies import render_time
from pulljobs.api.broker.bodies import (
    AppStatusBody,
    DeadCountBody,
    DeadCountsBody,
    NamedBody,
    NamedConsumerBody,
    SeedBody,
    StateCountBody,
    StateCounts,
)
from pulljobs.api.broker.resources import name_of
from pulljobs.conf import settings
from pulljobs.models import Channel, Consumer, Producer
from pulljobs.models.token_holders import TokenHolder
from pulljobs.states import State
from pulljobs.storage import counts
from pulljobs.storage.counts import Count

INITIALISED: Final = 3
"""Protocol's number for an initialised broker: a server that answers is initialised."""
LISTED: Final = 100
"""Largest number of channels, of producers and of consumers in the answer of /_status."""
StateNumber = Literal[1001, 1002, 1003, 1004]
NUMBERS: Final[Mapping[State, StateNumber]] = {
    State.QUEUED: 1001,
    State.INFLIGHT: 1002,
    State.DELIVERED: 1003,
    State.DEAD: 1004,
}


class AppStatus(UserView):
    """View of the names of channels, producers and consumers, at most LISTED of each."""

    needs = {
        "GET": ["pulljobs.view_channel", "pulljobs.view_producer", "pulljobs.view_consumer"],
    }

    def get(self, request: Request) -> Response:
        using = settings().DATABASE
        channels = _named(Channel.objects.using(using).order_by("name")[: LISTED + 1])
        producers = _named(Producer.objects.using(using).order_by("name")[: LISTED + 1])
        consumers = _named_consumers(using)
        seed: SeedBody = {
            "Channels": channels[:LISTED],
            "Producers": producers[:LISTED],
            "Consumers": consumers[:LISTED],
        }
        if max(len(channels), len(producers), len(consumers)) > LISTED:
            seed["Capped"] = True
        body: AppStatusBody = {"SeedData": seed, "AppStatus": INITIALISED}
        return Response(body)


class JobStatus(UserView):
    """View of the counts of jobs by channel, then by the consumer's primary key, then by state.

    DELIVERED jobs are counted among the newest settlements of all consumers.
    """

    needs = {"GET": ["pulljobs.view_job"]}

    def get(self, request: Request) -> Response:
        using = settings().DATABASE
        consumers = {row.pk: row for row in counts.consumers(using)}
        body: StateCounts = defaultdict(dict)
        for consumer in consumers.values():
            body[consumer.channel.name][str(consumer.pk)] = []
        for count in [*counts.live(using, list(consumers)), *counts.delivered(using)]:
            if count.consumer_id in consumers:
                channel = consumers[count.consumer_id].channel.name
                body[channel][str(count.consumer_id)].append(_render_count(count))
        return Response(body)


class DeadLetterStatus(UserView):
    """View of the consumers that have DEAD jobs, with the number of these jobs."""

    needs = {"GET": ["pulljobs.view_job"]}

    def get(self, request: Request) -> Response:
        using = settings().DATABASE
        consumers = {row.pk: row for row in counts.consumers(using)}
        live = counts.live(using, list(consumers))
        body: DeadCountsBody = {
            "consumers": [
                _render_dead_count(consumers[count.consumer_id], count)
                for count in live
                if count.state == State.DEAD
            ]
        }
        return Response(body)


class Metrics(UserView):
    """View of the metrics in the format of Prometheus.

    The counters are of this process, or of all processes that share them by `prometheus_client`.
    """

    needs = {"GET": ["pulljobs.view_job"]}

    def get(self, request: Request) -> HttpResponse:
        if not metrics.is_installed():
            raise exceptions.without_metrics()
        from pulljobs.metrics import exposition

        body, content_type = exposition.answer(request.headers.get("Accept", ""))
        return HttpResponse(body, content_type=content_type)


def _named(rows: Iterable[TokenHolder]) -> list[NamedBody]:
    return [{"ID": row.name, "Name": name_of(row)} for row in rows]


def _named_consumers(using: str) -> list[NamedConsumerBody]:
    rows = Consumer.objects.using(using).filter(deleted_at=None).select_related("channel")
    return [
        {
            "ID": row.name,
            "Name": name_of(row),
            "Channel": row.channel.name,
            "Type": Consumer.Type(row.type),
        }
        for row in rows.order_by("pk")[: LISTED + 1]
    ]


def _render_count(count: Count) -> StateCountBody:
    body: StateCountBody = {
        "status": NUMBERS[count.state],
        "count": count.jobs,
        "oldestItemTimestamp": render_time(count.oldest) if count.oldest else None,
        "newestItemTimestamp": render_time(count.newest) if count.newest else None,
    }
    if count.capped:
        body["Capped"] = True
    return body


def _render_dead_count(consumer: Consumer, count: Count) -> DeadCountBody:
    body: DeadCountBody = {
        "channelId": consumer.channel.name,
        "channelName": name_of(consumer.channel),
        "consumerId": str(consumer.pk),
        "consumerName": name_of(consumer),
        "deadCount": count.jobs,
    }
    if count.capped:
        body["Capped"] = True
    return body
