"""What was settled, over time: of the last hour from the archive, beyond it from the rollups."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from django.db.models import Count, Max, Min, QuerySet, Sum

from pulljobs.conf import settings
from pulljobs.dashboard.ranges import Range
from pulljobs.models import Rollup, RollupRun
from pulljobs.storage import recent
from pulljobs.storage.recent import Quantiles, Settled, Slice

COUNTS: Final = ("delivered", "dead", "retries")
TIMES: Final = [f"{measure}_p{one}" for measure in ("wait", "run") for one in (50, 95, 99)]


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
    known: timedelta
    """How much of the time of these it tells of."""
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


def read(
    chosen: Range, now: datetime, consumer_id: int | None, shown: Collection[int] = ()
) -> History:
    """Of all, or of that consumer; beyond the hour each one's own of those shown only."""
    slices = chosen.slices(now)
    if chosen.period is None:
        return of_archive(slices, chosen.step, consumer_id)
    return of_rollups(chosen.period, slices, chosen.step, consumer_id, shown)


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
    period: str,
    slices: Sequence[Slice],
    step: timedelta,
    consumer_id: int | None = None,
    shown: Collection[int] = (),
) -> History:
    history = empty(slices, step)
    history.known_until = _known_until()
    history.known = _known(period, slices, history.known_until)
    places = {one.start: place for place, one in enumerate(slices)}
    rows = _rollups(period, slices)
    for row in _sums(rows if consumer_id is None else rows.filter(consumer_id=consumer_id)):
        history.is_worst |= row.who > 1
        for tally in (history.total, history.points[places[row.start]]):
            _add(tally, row)
    for row in _each(rows.filter(consumer_id__in=shown)):
        history.trends[row.who][places[row.start]] += row.delivered + row.dead
        _add(history.consumers[row.who], row)
    _end_at(history, step)
    return history


def empty(slices: Sequence[Slice], step: timedelta) -> History:
    points = [Point(start=one.start, is_whole=one.end - one.start == step) for one in slices]
    known = slices[-1].end - slices[0].start
    trends: dict[int, list[float]] = defaultdict(lambda: [0.0] * len(slices))
    return History(points, known, Tally(), defaultdict(Tally), trends)


def _take(tally: Tally, row: Settled) -> None:
    tally.count(row.delivered, row.dead, row.retries)
    tally.waits, tally.runs, tally.is_estimate = row.waits, row.runs, row.is_estimate


class Counted(NamedTuple):
    """Of a step."""

    start: datetime
    who: int
    """The consumer; of a sum, how many there are in it."""
    delivered: int
    dead: int
    retries: int
    waits: Quantiles | None
    runs: Quantiles | None


def _rollups(period: str, slices: Sequence[Slice]) -> QuerySet[Rollup]:
    return Rollup.objects.using(settings().DATABASE).filter(
        period=period, starts_at__in=[one.start for one in slices]
    )


def _sums(rows: QuerySet[Rollup]) -> Iterator[Counted]:
    """Of all consumers together, by the database: there may be thousands."""
    found = (
        rows.order_by()
        .values_list("starts_at")
        .annotate(Count("pk"), *map(Sum, COUNTS), *map(Max, TIMES))
    )
    return map(_counted, found)


def _each(rows: QuerySet[Rollup]) -> Iterator[Counted]:
    return map(_counted, rows.values_list("starts_at", "consumer_id", *COUNTS, *TIMES))


def _counted(row: tuple[Any, ...]) -> Counted:
    start, who, delivered, dead, retries, *times = row
    waits, runs = _quantiles(times[:3]), _quantiles(times[3:])
    return Counted(start, who, delivered, dead, retries, waits, runs)


def _quantiles(times: Sequence[float | None]) -> Quantiles | None:
    low, middle, high = times
    return None if low is None or middle is None or high is None else (low, middle, high)


def _add(tally: Tally, row: Counted) -> None:
    tally.count(row.delivered, row.dead, row.retries)
    tally.waits, tally.runs = _worst(tally.waits, row.waits), _worst(tally.runs, row.runs)


def _worst(known: Quantiles | None, other: Quantiles | None) -> Quantiles | None:
    if known is None or other is None:
        return known or other
    low, middle, high = map(max, zip(known, other, strict=True))
    return low, middle, high


def _known_until() -> datetime | None:
    last = RollupRun.objects.using(settings().DATABASE).order_by("-id").first()
    return last.known_until if last else None


def _known(period: str, slices: Sequence[Slice], until: datetime | None) -> timedelta:
    """How much of that time rollups tell of; they begin with the first there is."""
    rows = Rollup.objects.using(settings().DATABASE).filter(period=period)
    first: datetime | None = rows.aggregate(first=Min("starts_at"))["first"]
    if first is None or until is None:
        return timedelta(0)
    end = min(until, slices[-1].end)
    return max(timedelta(0), end - max(first, slices[0].start))


def _end_at(history: History, step: timedelta) -> None:
    """What came after the last rollup is not nothing, but unknown."""
    until = history.known_until
    for point in history.points:
        if until is None or point.start + step > until:
            point.is_whole = False
