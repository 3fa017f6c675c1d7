"""Counts and rates that the lists of channels, producers and consumers show in their columns.

The figures of all rows of a page are read together, and the number of rows read is bounded.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from django.http import HttpRequest

from pulljobs import ids
from pulljobs.admin import formats
from pulljobs.admin.changelist import CheckedChangeList
from pulljobs.admin.dashboard.formats import counted
from pulljobs.conf import settings
from pulljobs.diagnosis import serving
from pulljobs.diagnosis.serving import HeldBack
from pulljobs.models import ArchivedJob, Channel, Consumer, Message, Producer
from pulljobs.models.token_holders import TokenHolder
from pulljobs.storage import backlog, nodes
from pulljobs.storage.backlog import Backlog

WITHIN: Final = timedelta(minutes=1)
COUNTED: Final = 10_000
"""Largest number of rows of the last minute that are read, the newest.

If there are more, the rate is computed for the time that the rows read span.
"""


HeldBacks = list[HeldBack]


class Rates(NamedTuple):
    """Rates at which rows were written in the last minute, by owner, such as a consumer."""

    counts: Mapping[int, int]
    """Number of rows by the owner's primary key."""
    seconds: float
    """Time in which these rows were written: a minute, or less if they were too many."""

    def rate_of(self, ids: Iterable[int]) -> float:
        """Return the sum of the rates of these owners, in rows per second."""
        return sum(self.counts.get(id, 0) for id in ids) / self.seconds

    def text_of(self, *ids: int) -> str:
        """Return the sum of the rates of these owners as text, such as "2.5/s", or "-" for 0."""
        rate = self.rate_of(ids)
        return formats.NOTHING if not rate else f"{rate:,.1f}/s" if rate < 10 else f"{rate:,.0f}/s"


class Figures(NamedTuple):
    """Texts of the columns with figures, for a consumer or for all consumers of a channel."""

    at: datetime
    """Time by the database's clock at which the figures were read."""
    queued: str
    """Number of queued jobs that are ready or blocked."""
    delayed: str
    """Number of queued jobs that are due later."""
    in_flight: str
    dead: str
    oldest: str
    """Time since the oldest ready job became ready."""
    rate: str
    """Settlements of a consumer, or messages of a channel, per second."""
    held_back: HeldBacks
    """Consumers and tasks that nodes hold back because their jobs fail."""


class WithFigures(CheckedChangeList):
    """Change list that sets the attribute `figures` of its rows, by `figures_of` of its admin."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        listed: Any = self.model_admin
        figures = listed.figures_of(list(self.result_list))
        for token_holder in self.result_list:
            token_holder.figures = figures[token_holder.pk]


def read_consumers(consumers: Sequence[Consumer]) -> dict[int, Figures]:
    """Return the figures of consumers by their primary keys."""
    using = settings().DATABASE
    backlogs = {row.consumer_id: row for row in backlog.backlogs(using, _ids(consumers))}
    now, rates, living = nodes.clock(using), settled(), serving.living()
    return {
        consumer.pk: _figures(
            [backlogs[consumer.pk]],
            now,
            rates.text_of(consumer.pk),
            serving.held_back_of(living, consumer.path),
        )
        for consumer in consumers
    }


def read_channels(channels: Sequence[Channel]) -> dict[int, Figures]:
    """Return the figures of channels by their primary keys.

    Jobs are counted over the channel's consumers, without deleted ones. The rate is that of its
    messages.
    """
    using = settings().DATABASE
    rows = Consumer.objects.using(using).filter(channel_id__in=_ids(channels), deleted_at=None)
    consumers = list(rows.values_list("pk", "channel_id", "name"))
    channel_of = {pk: channel_id for pk, channel_id, _name in consumers}
    living = serving.living()
    backlogs = backlog.backlogs(using, list(channel_of))
    now, rates = nodes.clock(using), published("channel_id")
    return {
        channel.pk: _figures(
            [row for row in backlogs if channel_of[row.consumer_id] == channel.pk],
            now,
            rates.text_of(channel.pk),
            [
                held
                for _pk, channel_id, name in consumers
                if channel_id == channel.pk
                for held in serving.held_back_of(living, f"{channel.name}/{name}")
            ],
        )
        for channel in channels
    }


def read_producers(producers: Sequence[Producer]) -> dict[int, str]:
    """Return the rates of messages as text, by the producers' primary keys."""
    rates = published("producer_id")
    return {producer.pk: rates.text_of(producer.pk) for producer in producers}


def settled() -> Rates:
    """Return the rates of settlements by consumer."""
    return _rates(ArchivedJob.objects, "consumer_id")


def published(by: str) -> Rates:
    """Return the rates of messages by channel or producer: `by` is their column's name."""
    return _rates(Message.objects, by)


def _rates(manager: Any, by: str) -> Rates:
    using = settings().DATABASE
    now: datetime = nodes.clock(using)
    rows = manager.using(using).filter(id__gte=ids.first_of(now - WITHIN)).order_by("-id")
    newest = list(rows.values_list("id", by)[:COUNTED])
    since = ids.time_of(newest[-1][0]) if len(newest) == COUNTED else now - WITHIN
    seconds = max(1.0, (now - since).total_seconds())
    return Rates(Counter(token_holder for _id, token_holder in newest), seconds)


def _figures(
    backlogs: Sequence[Backlog], now: datetime, rate: str, held: list[HeldBack]
) -> Figures:
    oldest = min((row.oldest_ready_at for row in backlogs if row.oldest_ready_at), default=None)
    return Figures(
        now,
        _sum(backlogs, "ready", "blocked"),
        _sum(backlogs, "delayed"),
        _sum(backlogs, "in_flight"),
        _sum(backlogs, "dead"),
        formats.duration(max(0.0, (now - oldest).total_seconds()) if oldest else None),
        rate,
        held,
    )


def _sum(backlogs: Sequence[Backlog], *names: str) -> str:
    """Return the sum of some counts over backlogs as text, with a plus if a count was cut off."""
    count = sum(getattr(row, name) for row in backlogs for name in names)
    is_more = any(row.is_least(name) for row in backlogs for name in names)
    return counted(count, is_least=is_more)


def _ids(token_holders: Sequence[TokenHolder]) -> list[int]:
    return [token_holder.pk for token_holder in token_holders]
