"""Consumers: what they have to do, how old it is, and how it went."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Sum
from django.db.models.functions import Now
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from pulljobs.admin.dashboard import figures
from pulljobs.admin.dashboard.charts import bars
from pulljobs.admin.dashboard.history import History, Tally
from pulljobs.admin.dashboard.links import Links
from pulljobs.admin.dashboard.workers import Worker
from pulljobs.conf import settings
from pulljobs.models import Consumer, PullWaiter
from pulljobs.storage import backlog, counts
from pulljobs.storage.backlog import COUNTS, Backlog

SHOWN: Final = 40
"""The first ones by name; sums and findings are of all."""
LONGEST_AGE: Final = 86_400.0
"""The end of the bars of ages, which are logarithmic."""


@dataclass(frozen=True)
class Badge:
    kind: str
    text: str


@dataclass(frozen=True)
class Standing:
    """One consumer at a moment."""

    consumer: Consumer
    backlog: Backlog
    now: datetime
    waiting: int
    """Pulls that wait for jobs of it."""
    workers: Sequence[Worker] | None
    """Those that say they serve it; None: it is not known."""
    estimate: int | None = None
    """Of what is queued, where it is too much to be counted."""

    @property
    def place(self) -> str:
        return place_of(self.consumer)

    @property
    def oldest_seconds(self) -> float | None:
        oldest = self.backlog.oldest_ready_at
        return None if oldest is None else max(0.0, (self.now - oldest).total_seconds())

    @property
    def paused_until(self) -> datetime | None:
        ends = [self.consumer.paused_until, self.consumer.channel.paused_until]
        return max((one for one in ends if one and one > self.now), default=None)

    @property
    def is_served(self) -> bool:
        return self.workers is None or bool(self.workers or self.waiting or self.backlog.in_flight)

    @property
    def is_left_alone(self) -> bool:
        """Something is ready and nobody comes for it."""
        return bool(self.backlog.ready) and not self.is_served and self.paused_until is None

    @property
    def queued(self) -> int:
        return self.backlog.queued if self.estimate is None else self.estimate


@dataclass(frozen=True)
class Row:
    """What the table says of a consumer."""

    standing: Standing
    tally: Tally
    trend: Sequence[float]
    known: timedelta
    """For how long it was counted."""
    links: Links

    @property
    def address(self) -> str | None:
        return self.links.consumer(self.standing.consumer.pk)

    @property
    def badges(self) -> list[Badge]:
        return list(_badges(self.standing))

    @property
    def counts(self) -> list[tuple[str, str | None]]:
        """Ready, due later, behind keys, in flight, dead: each with where it leads."""
        now, pk = self.standing.backlog, self.standing.consumer.pk
        states = ("QUEUED", None, None, "INFLIGHT", "DEAD")
        return [
            (
                figures.counted(value, is_least=now.is_least(name)),
                self.links.jobs(consumer=pk, state=state) if state and value else None,
            )
            for name, state in zip(COUNTS, states, strict=True)
            for value in [getattr(now, name)]
        ]

    @property
    def estimate(self) -> str:
        estimate = self.standing.estimate
        return "" if estimate is None else _("about %s queued") % figures.compact(estimate)

    @property
    def age(self) -> str:
        return figures.duration(self.standing.oldest_seconds)

    @property
    def age_share(self) -> float:
        """In per cent, from a second to a day."""
        seconds = self.standing.oldest_seconds or 0.0
        return round(min(100.0, 100 * math.log1p(seconds) / math.log1p(LONGEST_AGE)), 1)

    @property
    def drained_in(self) -> str:
        """Of what is queued, as fast as it went in what is known of the range."""
        if not (self.standing.queued and self.tally.settled and self.known):
            return figures.NOTHING
        seconds = self.standing.queued * self.known.total_seconds() / self.tally.settled
        return figures.duration(seconds)

    @property
    def settled(self) -> str:
        return self._count(self.tally.settled)

    @property
    def dead(self) -> str:
        return self._count(self.tally.dead)

    @property
    def failed(self) -> str:
        share = self.tally.failed_share
        return figures.NOTHING if share is None else figures.percent(share)

    @property
    def failed_share(self) -> float:
        return round(100 * (self.tally.failed_share or 0.0), 1)

    @property
    def retries(self) -> str:
        return self._count(self.tally.retries)

    @property
    def waits(self) -> list[str]:
        return [figures.duration(one) for one in self.tally.waits or (None,) * 3]

    @property
    def runs(self) -> list[str]:
        return [figures.duration(one) for one in self.tally.runs or (None,) * 3]

    def _count(self, count: float) -> str:
        about = "≈ " if self.tally.is_estimate and count else ""
        return f"{about}{round(count):,}"

    @property
    def spark(self) -> SafeString:
        return bars.sparkline(self.trend)


def standings(
    now: datetime,
    workers: Sequence[Worker] | None,
    among: Sequence[Consumer] | None = None,
    estimated: int = SHOWN,
) -> list[Standing]:
    """Of all by name, or of those given; estimates are made of so many, as each is a query."""
    using = settings().DATABASE
    known = counts.consumers(using) if among is None else among
    waiting, serving = _waiting(using), _serving(workers or ())
    found = {one.consumer_id: one for one in backlog.backlogs(using, [one.pk for one in known])}
    return [
        Standing(
            consumer,
            found[consumer.pk],
            now,
            waiting.get(consumer.pk, 0),
            None if workers is None else serving.get(place_of(consumer), ()),
            backlog.estimate(using, found[consumer.pk]) if number < estimated else None,
        )
        for number, consumer in enumerate(known)
    ]


def rows(standing: Sequence[Standing], history: History, links: Links) -> list[Row]:
    blank = [0.0] * len(history.points)
    return [
        Row(
            one,
            history.consumers.get(one.consumer.pk, Tally()),
            history.trends.get(one.consumer.pk, blank),
            history.known,
            links,
        )
        for one in standing
    ]


def _serving(workers: Sequence[Worker]) -> Mapping[str, list[Worker]]:
    """By the places that they say they serve."""
    serving: dict[str, list[Worker]] = defaultdict(list)
    for one in workers:
        if one.is_alive:
            for place in one.serves:
                serving[place].append(one)
    return serving


def place_of(consumer: Consumer) -> str:
    return f"{consumer.channel.name}/{consumer.name}"


def _waiting(using: str) -> Mapping[int, int]:
    rows = PullWaiter.objects.using(using).filter(waiting_until__gt=Now())
    sums: Any = rows.values_list("consumer_id").annotate(Sum("waiting")).order_by()
    return dict(sums)


def _badges(standing: Standing) -> list[Badge]:
    badges = []
    if standing.consumer.type == Consumer.Type.PUSH:
        badges.append(Badge("plain", _("push")))
    if until := standing.paused_until:
        badges.append(Badge("warn", _("paused until %s") % figures.moment(until)))
    for worker in standing.workers or ():
        if circuit := worker.circuits.get(standing.place):
            text = _("held back, level %s") % circuit["level"]
            badges.append(Badge("warn", text))
            break
    if standing.is_left_alone:
        badges.append(Badge("bad", _("nobody serves it")))
    return badges
