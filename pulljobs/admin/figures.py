"""How channels, producers and consumers fare right now: bounded reads for all rows of a page."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from django.contrib.admin.views.main import ChangeList
from django.http import HttpRequest

from pulljobs import ids
from pulljobs.admin import looks
from pulljobs.admin.dashboard.figures import counted
from pulljobs.conf import settings
from pulljobs.diagnosis import serving
from pulljobs.models import ArchivedJob, Channel, Consumer, Message, Producer
from pulljobs.models.registry import TokenHolder
from pulljobs.storage import backlog, nodes
from pulljobs.storage.backlog import Backlog

WITHIN: Final = timedelta(minutes=1)
COUNTED: Final = 10_000
"""Of the newest rows; where they are more, the time that these took tells the rate."""


class Rates(NamedTuple):
    """By a second, of the last minute or of what is newest in it."""

    counts: Mapping[int, int]
    seconds: float

    def of(self, ids: Iterable[int]) -> float:
        return sum(self.counts.get(id, 0) for id in ids) / self.seconds

    def shown(self, *ids: int) -> str:
        rate = self.of(ids)
        return looks.NOTHING if not rate else f"{rate:,.1f}/s" if rate < 10 else f"{rate:,.0f}/s"


class Figures(NamedTuple):
    """Of a consumer, or of all consumers of a channel."""

    at: datetime
    """By the database's clock."""
    queued: str
    delayed: str
    in_flight: str
    dead: str
    oldest: str
    rate: str
    circuits: list[str]
    """Nodes that hold its jobs back, for they fail."""


class WithFigures(ChangeList):
    """Each row of the page with what is known of it now, as `figures`."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        listed: Any = self.model_admin
        found = listed.figures_of(list(self.result_list))
        for party in self.result_list:
            party.figures = found[party.pk]


def of_consumers(consumers: Sequence[Consumer]) -> dict[int, Figures]:
    using = settings().DATABASE
    backlogs = {one.consumer_id: one for one in backlog.backlogs(using, _ids(consumers))}
    now, rates, living = nodes.clock(using), settled(), serving.living()
    return {
        one.pk: _figures(
            [backlogs[one.pk]],
            now,
            rates.shown(one.pk),
            list(serving.circuits(living, f"{one.channel.name}/{one.name}")),
        )
        for one in consumers
    }


def of_channels(channels: Sequence[Channel]) -> dict[int, Figures]:
    """Sums over their consumers; the rate is that of messages."""
    using = settings().DATABASE
    rows = Consumer.objects.using(using).filter(channel_id__in=_ids(channels), deleted_at=None)
    channel_of = dict(rows.values_list("pk", "channel_id"))
    backlogs = backlog.backlogs(using, list(channel_of))
    now, rates = nodes.clock(using), published("channel_id")
    return {
        one.pk: _figures(
            [had for had in backlogs if channel_of[had.consumer_id] == one.pk],
            now,
            rates.shown(one.pk),
            [],
        )
        for one in channels
    }


def of_producers(producers: Sequence[Producer]) -> dict[int, str]:
    """The rate of messages."""
    rates = published("producer_id")
    return {one.pk: rates.shown(one.pk) for one in producers}


def settled() -> Rates:
    """Jobs, by consumer."""
    return _rates(ArchivedJob.objects, "consumer_id")


def published(by: str) -> Rates:
    """Messages, by `channel_id` or `producer_id`."""
    return _rates(Message.objects, by)


def _rates(manager: Any, by: str) -> Rates:
    using = settings().DATABASE
    now: datetime = nodes.clock(using)
    rows = manager.using(using).filter(id__gte=ids.first_of(now - WITHIN)).order_by("-id")
    newest = list(rows.values_list("id", by)[:COUNTED])
    since = ids.time_of(newest[-1][0]) if len(newest) == COUNTED else now - WITHIN
    seconds = max(1.0, (now - since).total_seconds())
    return Rates(Counter(party for _id, party in newest), seconds)


def _figures(backlogs: Sequence[Backlog], now: datetime, rate: str, circuits: list[str]) -> Figures:
    oldest = min((one.oldest_ready_at for one in backlogs if one.oldest_ready_at), default=None)
    return Figures(
        now,
        _sum(backlogs, "ready", "blocked"),
        _sum(backlogs, "delayed"),
        _sum(backlogs, "in_flight"),
        _sum(backlogs, "dead"),
        looks.duration(max(0.0, (now - oldest).total_seconds()) if oldest else None),
        rate,
        circuits,
    )


def _sum(backlogs: Sequence[Backlog], *names: str) -> str:
    """Marked where there may be more."""
    count = sum(getattr(one, name) for one in backlogs for name in names)
    is_more = any(one.is_least(name) for one in backlogs for name in names)
    return counted(count, is_least=is_more)


def _ids(parties: Sequence[TokenHolder]) -> list[int]:
    return [party.pk for party in parties]
