"""Rows of the table of consumers: their jobs now, and their settlements in the chosen range."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from pulljobs.admin.dashboard import formats
from pulljobs.admin.dashboard.charts import draw_sparkline
from pulljobs.admin.dashboard.consumer_status import ConsumerStatus
from pulljobs.admin.dashboard.history import History, Tally
from pulljobs.admin.links import Links
from pulljobs.diagnosis.serving import held_back_of
from pulljobs.models import Consumer
from pulljobs.storage.backlog import COUNTS
from pulljobs.storage.settlement_history import Pace

LONGEST_AGE: Final = 86_400.0
"""Age in seconds at which the bar of ages has its full length."""


@dataclass(frozen=True)
class Badge:
    """Label next to the name of a consumer, such as "push" or "not served"."""

    kind: str
    """Class of the style sheet: `plain`, `warn` or `bad`."""
    text: str


@dataclass(frozen=True)
class ConsumerRow:
    """Row of the table of consumers, with the texts of its cells."""

    status: ConsumerStatus
    tally: Tally
    """Sums of the chosen range."""
    trend: Sequence[float]
    """Settlements in each time step of the chosen range."""
    per_minute: float
    """Settlements of the last minute."""
    links: Links

    @property
    def address(self) -> str | None:
        """URL of the consumer's page, or None if the user may not see it."""
        return self.links.consumer(self.status.consumer.pk)

    @property
    def badges(self) -> list[Badge]:
        """Labels next to the consumer's name: push, paused, held back, not served."""
        return list(_badges(self.status))

    @property
    def counts(self) -> list[tuple[str, str | None]]:
        """Numbers of ready, due later, blocked, in flight and dead jobs, with URLs of their lists.

        The URL is None for 0 jobs, and for a list that no filter selects or the user may not see.
        """
        now, pk = self.status.backlog, self.status.consumer.pk
        states = ("QUEUED", None, None, "INFLIGHT", "DEAD")
        return [
            (
                formats.counted(value, is_least=now.is_least(name)),
                self.links.jobs(consumer=pk, state=state) if state and value else None,
            )
            for name, state in zip(COUNTS, states, strict=True)
            for value in [getattr(now, name)]
        ]

    @property
    def estimate(self) -> str:
        """Estimated number of queued jobs as text, or "" if they were counted or not estimated."""
        estimate = self.status.estimate
        return "" if estimate is None else _("about %s queued") % formats.compact(estimate)

    @property
    def age(self) -> str:
        """Time since the oldest ready job became ready, or "–" if no job is ready."""
        return formats.duration(self.status.oldest_seconds)

    @property
    def age_share(self) -> float:
        """Length in per cent of the bar for `age`, which is logarithmic and full at a day."""
        seconds = self.status.oldest_seconds or 0.0
        return round(min(100.0, 100 * math.log1p(seconds) / math.log1p(LONGEST_AGE)), 1)

    @property
    def drained_in(self) -> str:
        """Time in which all queued jobs end at the pace of the last minute.

        It is "–" if no job is queued, or if none ended in that minute.
        """
        if not (self.status.queued and self.per_minute):
            return formats.NOTHING
        return formats.duration(self.status.queued * 60 / self.per_minute)

    @property
    def settled(self) -> str:
        """Number of settlements in the chosen range, with "≈" if it is an estimate."""
        return self._count(self.tally.settled)

    @property
    def dead(self) -> str:
        """Number of settlements as DEAD in the chosen range."""
        return self._count(self.tally.dead)

    @property
    def failed(self) -> str:
        """Share of DEAD jobs among all settlements of the range, or "–" without settlements."""
        share = self.tally.failed_share
        return formats.NOTHING if share is None else formats.percent(share)

    @property
    def failed_share(self) -> float:
        """Settlements as DEAD in per cent of all in the range, as the length of a bar."""
        return round(100 * (self.tally.failed_share or 0.0), 1)

    @property
    def retries(self) -> str:
        """Number of counted retries of the jobs that were settled in the chosen range."""
        return self._count(self.tally.retries)

    @property
    def waits(self) -> list[str]:
        """Texts of p50, p95 and p99 of the times from creation to claim: see `Tally.waits`."""
        return [formats.duration(seconds) for seconds in self.tally.waits or (None,) * 3]

    @property
    def runs(self) -> list[str]:
        """Texts of p50, p95 and p99 of the run time."""
        return [formats.duration(seconds) for seconds in self.tally.runs or (None,) * 3]

    def _count(self, count: float) -> str:
        about = "≈ " if self.tally.is_estimate and count else ""
        return f"{about}{round(count):,}"

    @property
    def spark(self) -> SafeString:
        """Sparkline of the settlements in each time step of the chosen range."""
        return draw_sparkline(self.trend)


def make_rows(
    statuses: Sequence[ConsumerStatus], history: History, pace: Pace, links: Links
) -> list[ConsumerRow]:
    """Return a row for each consumer, in the same order."""
    blank = [0.0] * len(history.points)
    return [
        ConsumerRow(
            status,
            history.consumers.get(status.consumer.pk, Tally()),
            history.trends.get(status.consumer.pk, blank),
            pace.per_minute(status.consumer.pk),
            links,
        )
        for status in statuses
    ]


def _badges(status: ConsumerStatus) -> list[Badge]:
    badges = []
    if status.consumer.type == Consumer.Type.PUSH:
        badges.append(Badge("plain", _("push")))
    if until := status.paused_until:
        badges.append(Badge("warn", _("paused until %s") % formats.timestamp(until)))
    if held_back := held_back_of([each.node for each in status.workers or ()], status.path):
        worst = max(held_back, key=lambda held: held.level)
        tasks = {held.task for held in held_back if held.task}
        text = ngettext("%(tasks)s task held back", "%(tasks)s tasks held back", len(tasks))
        values = {"tasks": len(tasks), "level": worst.level}
        badges.append(Badge("warn", (text if tasks else _("held back, level %(level)s")) % values))
    if status.is_unserved:
        badges.append(Badge("bad", _("not served")))
    return badges
