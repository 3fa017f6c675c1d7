"""Table of consumers: their backlog, its age, and their recent settlements."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from pulljobs.admin.dashboard import figures
from pulljobs.admin.dashboard.charts import draw_sparkline
from pulljobs.admin.dashboard.consumer_status import ConsumerStatus
from pulljobs.admin.dashboard.history import History, Tally
from pulljobs.admin.dashboard.links import Links
from pulljobs.diagnosis.serving import held_back_of
from pulljobs.models import Consumer
from pulljobs.storage.backlog import COUNTS
from pulljobs.storage.settlement_history import Pace

LONGEST_AGE: Final = 86_400.0
"""End of the logarithmic bars of ages."""


@dataclass(frozen=True)
class Badge:
    """Mark next to the name of a consumer."""

    kind: str
    text: str


@dataclass(frozen=True)
class ConsumerRow:
    """Row of a consumer in the table."""

    standing: ConsumerStatus
    tally: Tally
    trend: Sequence[float]
    per_minute: float
    """Settlements of the last minute."""
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
        """Estimate of the queued jobs as text, empty if they were counted."""
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
        """Time to settle all queued jobs at the pace of the last minute."""
        if not (self.standing.queued and self.per_minute):
            return figures.NOTHING
        return figures.duration(self.standing.queued * 60 / self.per_minute)

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


def make_rows(
    standings: Sequence[ConsumerStatus], history: History, pace: Pace, links: Links
) -> list[ConsumerRow]:
    """Return the rows of the table."""
    blank = [0.0] * len(history.points)
    return [
        ConsumerRow(
            standing,
            history.consumers.get(standing.consumer.pk, Tally()),
            history.trends.get(standing.consumer.pk, blank),
            pace.per_minute(standing.consumer.pk),
            links,
        )
        for standing in standings
    ]


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
