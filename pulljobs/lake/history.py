"""Ranges of the dashboard beyond the last hour, read from the rollups."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from django.db.models import Count, Max, Min, QuerySet, Sum
from django.utils.translation import gettext as _text
from django.utils.translation import gettext_lazy as _

from pulljobs.admin.dashboard import figures
from pulljobs.admin.dashboard.history import History, Tally, make_empty
from pulljobs.admin.dashboard.ranges import DAY, HOUR, Range
from pulljobs.conf import settings
from pulljobs.lake.models import Rollup, RollupRun
from pulljobs.lake.models.rollups import Period
from pulljobs.storage.recent import Quantiles, Slice

COUNTS: Final = ("delivered", "dead", "retries")
TIMES: Final = [
    f"{measure}_p{quantile}" for measure in ("wait", "run") for quantile in (50, 95, 99)
]


class StepCount(NamedTuple):
    """Settlements of one step: of one consumer, or the sum of several."""

    start: datetime
    consumers: int
    """The consumer's id. In a sum it is the number of consumers."""
    delivered: int
    dead: int
    retries: int
    waits: Quantiles | None
    runs: Quantiles | None


@dataclass(frozen=True)
class RollupSource:
    """Rollups of one period, as an `admin.dashboard.ranges.HistorySource`."""

    period: Period

    def read_history(
        self, chosen: Range, now: datetime, consumer_id: int | None, shown: Collection[int]
    ) -> History:
        slices = chosen.slices(now)
        history = make_empty(slices, chosen.step)
        history.known_until = _known_until()
        history.known = _known(self.period, slices, history.known_until)
        positions = {slice.start: position for position, slice in enumerate(slices)}
        rows = _rollups(self.period, slices)
        for step in _sums(rows if consumer_id is None else rows.filter(consumer_id=consumer_id)):
            history.is_worst |= step.consumers > 1
            for tally in (history.total, history.points[positions[step.start]]):
                _add(tally, step)
        for step in _each(rows.filter(consumer_id__in=shown)):
            history.trends[step.consumers][positions[step.start]] += step.delivered + step.dead
            _add(history.consumers[step.consumers], step)
        _mark_unknown(history, chosen.step)
        return history

    def describe(self, history: History, chosen: Range) -> Iterator[str]:
        if history.known_until is None:
            yield _text(
                "There are no rollups of this time. The command pulljobs lake rollup writes them."
            )
            return
        at = figures.timestamp(history.known_until)
        yield _text("From the rollups of the lake, which know of settlements until %s.") % at
        if history.is_worst:
            yield (
                _text(
                    "Percentiles of several consumers can't be merged: the highest of each %s is "
                    "shown. Choose a consumer to see its own."
                )
                % chosen.step_title
            )


RANGES: Final = (
    Range(
        "day", _("24 hours"), 24, HOUR, _("hour"), RollupSource(Period.HOUR), label=figures.clock
    ),
    Range(
        "week", _("7 days"), 7 * 24, HOUR, _("hour"), RollupSource(Period.HOUR), label=figures.day
    ),
    Range(
        "month",
        _("30 days"),
        30,
        DAY,
        _("day (UTC)"),
        RollupSource(Period.DAY),
        label=figures.utc_day,
        name_step=figures.utc_date,
    ),
)


def _rollups(period: str, slices: Sequence[Slice]) -> QuerySet[Rollup]:
    return Rollup.objects.using(settings().DATABASE).filter(
        period=period, starts_at__in=[slice.start for slice in slices]
    )


def _sums(rows: QuerySet[Rollup]) -> Iterator[StepCount]:
    """Yield the sums over all consumers, made by the database: there may be thousands."""
    sums = (
        rows.order_by()
        .values_list("starts_at")
        .annotate(Count("pk"), *map(Sum, COUNTS), *map(Max, TIMES))
    )
    return map(_step_count, sums)


def _each(rows: QuerySet[Rollup]) -> Iterator[StepCount]:
    return map(_step_count, rows.values_list("starts_at", "consumer_id", *COUNTS, *TIMES))


def _step_count(row: tuple[Any, ...]) -> StepCount:
    start, consumers, delivered, dead, retries, *times = row
    waits, runs = _quantiles(times[:3]), _quantiles(times[3:])
    return StepCount(start, consumers, delivered, dead, retries, waits, runs)


def _quantiles(times: Sequence[float | None]) -> Quantiles | None:
    low, middle, high = times
    return None if low is None or middle is None or high is None else (low, middle, high)


def _add(tally: Tally, step: StepCount) -> None:
    tally.count(step.delivered, step.dead, step.retries)
    tally.waits, tally.runs = _worst(tally.waits, step.waits), _worst(tally.runs, step.runs)


def _worst(known: Quantiles | None, other: Quantiles | None) -> Quantiles | None:
    if known is None or other is None:
        return known or other
    low, middle, high = map(max, zip(known, other, strict=True))
    return low, middle, high


def _known_until() -> datetime | None:
    last = RollupRun.objects.using(settings().DATABASE).order_by("-id").first()
    return last.known_until if last else None


def _known(period: str, slices: Sequence[Slice], until: datetime | None) -> timedelta:
    """Return how much of the slices' time the rollups cover, from the first rollup on."""
    rows = Rollup.objects.using(settings().DATABASE).filter(period=period)
    first: datetime | None = rows.aggregate(first=Min("starts_at"))["first"]
    if first is None or until is None:
        return timedelta(0)
    end = min(until, slices[-1].end)
    return max(timedelta(0), end - max(first, slices[0].start))


def _mark_unknown(history: History, step: timedelta) -> None:
    """Mark the points that end after the last rollup: their settlements are not known yet."""
    until = history.known_until
    for point in history.points:
        if until is None or point.start + step > until:
            point.is_whole = False
