"""Consumers: their backlog, its age, and their recent settlements."""

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
from django.utils.translation import ngettext

from pulljobs.admin.dashboard import figures
from pulljobs.admin.dashboard.charts import draw_sparkline
from pulljobs.admin.dashboard.history import History, Tally
from pulljobs.admin.dashboard.links import Links
from pulljobs.admin.dashboard.workers import Worker
from pulljobs.conf import settings
from pulljobs.diagnosis.serving import held_back_of
from pulljobs.models import Consumer, PullWaiter
from pulljobs.storage import backlog, counts
from pulljobs.storage.backlog import COUNTS, Backlog

SHOWN: Final = 40
"""Consumers in the table, the first by name; sums and findings cover all."""
LONGEST_AGE: Final = 86_400.0
"""End of the logarithmic bars of ages."""


@dataclass(frozen=True)
class Badge:
    """Mark next to the name of a consumer."""

    kind: str
    text: str


@dataclass(frozen=True)
class ConsumerStatus:
    """State of a consumer at a time."""

    consumer: Consumer
    backlog: Backlog
    now: datetime
    waiting: int
    """Long polls that wait for its jobs."""
    workers: Sequence[Worker] | None
    """Workers that report that they serve it; None: unknown."""
    estimate: int | None = None
    """Estimate of the queued jobs, if they are too many to count."""

    @property
    def path(self) -> str:
        """Consumer path, `channel/consumer`."""
        return path_of(self.consumer)

    @property
    def oldest_seconds(self) -> float | None:
        """Seconds since the oldest ready job became ready; None: no job is ready."""
        oldest = self.backlog.oldest_ready_at
        return None if oldest is None else max(0.0, (self.now - oldest).total_seconds())

    @property
    def paused_until(self) -> datetime | None:
        """End of the pause of the consumer or its channel; None: it is not paused."""
        ends = [self.consumer.paused_until, self.consumer.channel.paused_until]
        return max((end for end in ends if end and end > self.now), default=None)

    @property
    def is_served(self) -> bool:
        """True if a worker, a long poll or a holder of jobs serves it, or if that is unknown."""
        return self.workers is None or bool(self.workers or self.waiting or self.backlog.in_flight)

    @property
    def is_unserved(self) -> bool:
        """True if jobs are ready and no process serves the consumer."""
        return bool(self.backlog.ready) and not self.is_served and self.paused_until is None

    @property
    def queued(self) -> int:
        """Number of queued jobs, counted or estimated."""
        return self.backlog.queued if self.estimate is None else self.estimate


@dataclass(frozen=True)
class ConsumerRow:
    """Row of a consumer in the table."""

    standing: ConsumerStatus
    tally: Tally
    trend: Sequence[float]
    known: timedelta
    """Length of the time that was counted."""
    links: Links

    @property
    def address(self) -> str | None:
        """URL of its page, if the user may see it."""
        return self.links.consumer(self.standing.consumer.pk)

    @property
    def badges(self) -> list[Badge]:
        """Marks next to its name."""
        return list(_badges(self.standing))

    @property
    def counts(self) -> list[tuple[str, str | None]]:
        """Ready, due later, blocked, in flight and dead jobs, each with a link."""
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
        """Estimate of the queued jobs as text; empty if they were counted."""
        estimate = self.standing.estimate
        return "" if estimate is None else _("about %s queued") % figures.compact(estimate)

    @property
    def age(self) -> str:
        """Age of the oldest ready job."""
        return figures.duration(self.standing.oldest_seconds)

    @property
    def age_share(self) -> float:
        """Length of the bar of the age in per cent, from a second to a day."""
        seconds = self.standing.oldest_seconds or 0.0
        return round(min(100.0, 100 * math.log1p(seconds) / math.log1p(LONGEST_AGE)), 1)

    @property
    def drained_in(self) -> str:
        """Time to settle all queued jobs at the pace of the range."""
        if not (self.standing.queued and self.tally.settled and self.known):
            return figures.NOTHING
        seconds = self.standing.queued * self.known.total_seconds() / self.tally.settled
        return figures.duration(seconds)

    @property
    def settled(self) -> str:
        """Number of settlements in the range."""
        return self._count(self.tally.settled)

    @property
    def dead(self) -> str:
        """Number of deaths in the range."""
        return self._count(self.tally.dead)

    @property
    def failed(self) -> str:
        """Share of deaths among the settlements."""
        share = self.tally.failed_share
        return figures.NOTHING if share is None else figures.percent(share)

    @property
    def failed_share(self) -> float:
        """Share of deaths in per cent, for the bar."""
        return round(100 * (self.tally.failed_share or 0.0), 1)

    @property
    def retries(self) -> str:
        """Number of retries in the range."""
        return self._count(self.tally.retries)

    @property
    def waits(self) -> list[str]:
        """Percentiles of the wait until the first claim."""
        return [figures.duration(seconds) for seconds in self.tally.waits or (None,) * 3]

    @property
    def runs(self) -> list[str]:
        """Percentiles of the run time."""
        return [figures.duration(seconds) for seconds in self.tally.runs or (None,) * 3]

    def _count(self, count: float) -> str:
        about = "≈ " if self.tally.is_estimate and count else ""
        return f"{about}{round(count):,}"

    @property
    def spark(self) -> SafeString:
        """Sparkline of the settlements."""
        return draw_sparkline(self.trend)


def read_standings(
    now: datetime,
    workers: Sequence[Worker] | None,
    among: Sequence[Consumer] | None = None,
    estimated: int = SHOWN,
) -> list[ConsumerStatus]:
    """Return the state of all consumers by name, or of those given.

    At most `estimated` queues are estimated, since each estimate is a query.
    """
    using = settings().DATABASE
    known = counts.consumers(using) if among is None else among
    waiting, serving = _waiting(using), _serving(workers or ())
    ids = [consumer.pk for consumer in known]
    backlogs = {row.consumer_id: row for row in backlog.backlogs(using, ids)}
    return [
        ConsumerStatus(
            consumer,
            backlogs[consumer.pk],
            now,
            waiting.get(consumer.pk, 0),
            None if workers is None else serving.get(path_of(consumer), ()),
            backlog.estimate(using, backlogs[consumer.pk]) if number < estimated else None,
        )
        for number, consumer in enumerate(known)
    ]


def make_rows(
    standings: Sequence[ConsumerStatus], history: History, links: Links
) -> list[ConsumerRow]:
    """Return the rows of the table."""
    blank = [0.0] * len(history.points)
    return [
        ConsumerRow(
            standing,
            history.consumers.get(standing.consumer.pk, Tally()),
            history.trends.get(standing.consumer.pk, blank),
            history.known,
            links,
        )
        for standing in standings
    ]


def _serving(workers: Sequence[Worker]) -> Mapping[str, list[Worker]]:
    """Return the workers by the consumer paths that they serve."""
    serving: dict[str, list[Worker]] = defaultdict(list)
    for worker in workers:
        if worker.is_alive:
            for path in worker.serves:
                serving[path].append(worker)
    return serving


@dataclass(frozen=True)
class Total:
    """Sum of a count over several consumers."""

    value: int
    is_least: bool
    """True if a count was cut off, so that there may be more."""

    def __str__(self) -> str:
        return figures.counted(self.value, is_least=self.is_least)


def total(standings: Sequence[ConsumerStatus], count: str) -> Total:
    """Return the sum of a count over consumers."""
    return Total(
        sum(getattr(standing.backlog, count) for standing in standings),
        any(standing.backlog.is_least(count) for standing in standings),
    )


def path_of(consumer: Consumer) -> str:
    """Return the consumer path, `channel/consumer`."""
    return f"{consumer.channel.name}/{consumer.name}"


def _waiting(using: str) -> Mapping[int, int]:
    rows = PullWaiter.objects.using(using).filter(waiting_until__gt=Now())
    sums: Any = rows.values_list("consumer_id").annotate(Sum("waiting")).order_by()
    return dict(sums)


def _badges(standing: ConsumerStatus) -> list[Badge]:
    badges = []
    if standing.consumer.type == Consumer.Type.PUSH:
        badges.append(Badge("plain", _("push")))
    if until := standing.paused_until:
        badges.append(Badge("warn", _("paused until %s") % figures.timestamp(until)))
    if held_back := held_back_of([each.node for each in standing.workers or ()], standing.path):
        worst = max(held_back, key=lambda held: held.level)
        tasks = {held.task for held in held_back if held.task}
        text = ngettext("%(tasks)s task held back", "%(tasks)s tasks held back", len(tasks))
        values = {"tasks": len(tasks), "level": worst.level}
        badges.append(Badge("warn", (text if tasks else _("held back, level %(level)s")) % values))
    if standing.is_unserved:
        badges.append(Badge("bad", _("not served")))
    return badges
