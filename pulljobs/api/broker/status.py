"""/_status, /job-status, /dlq-status: no tokens, and no count that takes long."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs.api import times
from pulljobs.api.base_views import UserView
from pulljobs.api.resources import name_of
from pulljobs.conf import settings
from pulljobs.models import Channel, Consumer, Producer
from pulljobs.models.registry import TokenHolder
from pulljobs.states import State
from pulljobs.storage import counts
from pulljobs.storage.counts import Count

INITIALISED: Final = 3
SHOWN: Final = 100
NUMBERS: Final = {
    State.QUEUED: 1001,
    State.INFLIGHT: 1002,
    State.DELIVERED: 1003,
    State.DEAD: 1004,
}


class AppStatus(UserView):
    """What there is, up to some of each kind; initialised as soon as it answers."""

    needs = {
        "GET": ["pulljobs.view_channel", "pulljobs.view_producer", "pulljobs.view_consumer"],
    }

    def get(self, request: Request) -> Response:
        using = settings().DATABASE
        consumers = Consumer.objects.using(using).filter(deleted_at=None)
        found = {
            "Channels": _named(Channel.objects.using(using).order_by("name")[: SHOWN + 1]),
            "Producers": _named(Producer.objects.using(using).order_by("name")[: SHOWN + 1]),
            "Consumers": [
                {**named, "Channel": row.channel.name, "Type": row.type}
                for row in consumers.select_related("channel").order_by("pk")[: SHOWN + 1]
                for named in _named([row])
            ],
        }
        seed: dict[str, Any] = {kind: rows[:SHOWN] for kind, rows in found.items()}
        if any(len(rows) > SHOWN for rows in found.values()):
            seed["Capped"] = True
        return Response({"SeedData": seed, "AppStatus": INITIALISED})


class JobStatus(UserView):
    """By channel and by the consumer's row, as the protocol has it."""

    needs = {"GET": ["pulljobs.view_job"]}

    def get(self, request: Request) -> Response:
        using = settings().DATABASE
        consumers = {row.pk: row for row in counts.consumers(using)}
        shown: defaultdict[str, dict[str, list[Any]]] = defaultdict(dict)
        for row in consumers.values():
            shown[row.channel.name][str(row.pk)] = []
        for one in [*counts.live(using, list(consumers)), *counts.delivered(using)]:
            if one.consumer_id in consumers:
                channel = consumers[one.consumer_id].channel.name
                shown[channel][str(one.consumer_id)].append(_count(one))
        return Response(shown)


class DeadLetterStatus(UserView):
    """Consumers that have DEAD jobs."""

    needs = {"GET": ["pulljobs.view_job"]}

    def get(self, request: Request) -> Response:
        using = settings().DATABASE
        consumers = {row.pk: row for row in counts.consumers(using)}
        dead = [one for one in counts.live(using, list(consumers)) if one.state == State.DEAD]
        return Response({"consumers": [_dead(consumers[one.consumer_id], one) for one in dead]})


def _named(rows: Iterable[TokenHolder]) -> list[dict[str, str]]:
    return [{"ID": row.name, "Name": name_of(row)} for row in rows]


def _count(one: Count) -> dict[str, Any]:
    return {
        "status": NUMBERS[one.state],
        "count": one.jobs,
        "oldestItemTimestamp": times.rfc_3339(one.oldest) if one.oldest else None,
        "newestItemTimestamp": times.rfc_3339(one.newest) if one.newest else None,
        **({"Capped": True} if one.capped else {}),
    }


def _dead(consumer: Consumer, one: Count) -> dict[str, Any]:
    return {
        "channelId": consumer.channel.name,
        "channelName": name_of(consumer.channel),
        "consumerId": str(consumer.pk),
        "consumerName": name_of(consumer),
        "deadCount": one.jobs,
        **({"Capped": True} if one.capped else {}),
    }
