"""What was settled, over time: of the last hour from the archive, beyond it from the rollups."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from django.db.models import QuerySet

from pulljobs.conf import settings
from pulljobs.dashboard.ranges import Range
from pulljobs.models import Rollup, RollupRun
from pulljobs.storage import recent
from pulljobs.storage.recent import Quantiles, Settled, Slice

MEASURES: Final = ("wait", "run")


@dataclass
class Tally:
    """Settlements; estimates where they were too many to be read."""

    delivered: float = 0.0
    dead: float = 0.0
    retries: float = 0.0
    waits: Quantiles | None = None
    runs: Quantiles | None = None
    is_estimate: bool = False

    @property
    def settled(self) -> float:
        return self.delivered + self.dead

    @property
    def failed_share(self) -> float | None:
        """None: nothing was settled."""
        return self.dead / self.settled if self.settled else None

    def count(self, delivered: float, dead: float, retries: float) -> None:
        self.delivered += delivered
        self.dead += dead
        self.retries += retries


@dataclass
class Point(Tally):
    """One step."""

    start: datetime = field(kw_only=True)
    is_whole: bool = True
    """It is over, and all of it is known."""


@dataclass
class History:
    points: list[Point]
    total: Tally
    consumers: dict[int, Tally]
    trends: dict[int, list[float]]
    """Settlements of each consumer, step by step."""
    is_worst: bool = False
    """Times of several consumers, which can't be merged: the highest among them are shown."""
    known_until: datetime | None = None
    """What rollups know of; None: there are none, or it is not about them."""

    @property
    def is_estimate(self) -> bool:
        return any(point.is_estimate for point in self.points)


def read(chosen: Range, now: datetime, consumer_id: int | None) -> History:
    slices = chosen.slices(now)
    if chosen.period is None:
        return of_archive(slices, chosen.step, consumer_id)
    return of_rollups(chosen.period, slices, chosen.step, consumer_id)


def of_archive(slices: Sequence[Slice], step: timedelta, consumer_id: int | None = None) -> History:
    history = empty(slices, step)
    for row in recent.settled(settings().DATABASE, slices):
        if row.slice is not None and row.consumer_id is not None:
            history.trends[row.consumer_id][row.slice] = row.settlements
        elif row.consumer_id is not None:
            _take(history.consumers[row.consumer_id], row)
        if row.consumer_id == consumer_id:
            _take(history.total if row.slice is None else history.points[row.slice], row)
    return history


def of_rollups(
    period: str, slices: Sequence[Slice], step: timedelta, consumer_id: int | None = None
) -> History:
    history = empty(slices, step)
    history.is_worst = consumer_id is None
    history.known_until = _known_until()
    places = {one.start: place for place, one in enumerate(slices)}
    for row in _rollups(period, slices):
        place = places.get(row.starts_at)
        if place is None:
            continue
        counts = (row.delivered, row.dead, row.retries)
        history.consumers[row.consumer_id].count(*counts)
        history.trends[row.consumer_id][place] += row.delivered + row.dead
        _worsen(history.consumers[row.consumer_id], row)
        if consumer_id in (None, row.consumer_id):
            for tally in (history.total, history.points[place]):
                tally.count(*counts)
                _worsen(tally, row)
    _end_at(history, step)
    return history


def empty(slices: Sequence[Slice], step: timedelta) -> History:
    points = [Point(start=one.start, is_whole=one.end - one.start == step) for one in slices]
    return History(points, Tally(), defaultdict(Tally), defaultdict(lambda: [0.0] * len(slices)))


def _take(tally: Tally, row: Settled) -> None:
    tally.count(row.delivered, row.dead, row.retries)
    tally.waits, tally.runs, tally.is_estimate = row.waits, row.runs, row.is_estimate


def _rollups(period: str, slices: Sequence[Slice]) -> QuerySet[Rollup]:
    rows = Rollup.objects.using(settings().DATABASE).filter(
        period=period, starts_at__gte=slices[0].start, starts_at__lt=slices[-1].end
    )
    times = [f"{measure}_p{one}" for measure in MEASURES for one in (50, 95, 99)]
    return rows.only("starts_at", "consumer_id", "delivered", "dead", "retries", *times)


def _worsen(tally: Tally, row: Rollup) -> None:
    tally.waits = _worst(tally.waits, _quantiles(row, "wait"))
    tally.runs = _worst(tally.runs, _quantiles(row, "run"))


def _quantiles(row: Rollup, measure: str) -> Quantiles | None:
    low, middle, high = (getattr(row, f"{measure}_p{one}") for one in (50, 95, 99))
    return None if low is None or middle is None or high is None else (low, middle, high)


def _worst(known: Quantiles | None, other: Quantiles | None) -> Quantiles | None:
    if known is None or other is None:
        return known or other
    low, middle, high = map(max, zip(known, other, strict=True))
    return low, middle, high


def _known_until() -> datetime | None:
    last = RollupRun.objects.using(settings().DATABASE).order_by("-id").first()
    return last.known_until if last else None


def _end_at(history: History, step: timedelta) -> None:
    """What came after the last rollup is not nothing, but unknown."""
    until = history.known_until
    for point in history.points:
        if until is None or point.start + step > until:
            point.is_whole = False
