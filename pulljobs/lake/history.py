"""Time ranges of the dashboard that show rollups of the lake for the time before live counts began.

`COUNTS` reads the live counts, which workers keep in PostgreSQL.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.db.models import Count, Max, QuerySet, Sum
from django.utils.translation import gettext as _text

from pulljobs.admin.dashboard import ranges
from pulljobs.admin.dashboard.history import DAY, HOUR, History, Tally
from pulljobs.admin.dashboard.ranges import COUNTS, Range
from pulljobs.conf import settings
from pulljobs.engine.histograms import Quantiles
from pulljobs.lake.models import Rollup
from pulljobs.lake.models.rollups import Period

SUMMED: Final = ("delivered", "dead", "retries")
TIMES: Final = [
    f"{measure}_p{quantile}" for measure in ("wait", "run") for quantile in (50, 95, 99)
]


class StepCount(NamedTuple):
    """Settlements of one consumer, or of all, in one time step of a chart."""

    start: datetime
    """Start of the time step, which is an hour or a day long."""
    consumers: int
    """Id of the consumer, or in a sum over all consumers their number."""
    delivered: int
    dead: int
    retries: int
    waits: Quantiles | None
    runs: Quantiles | None


@dataclass(frozen=True)
class RollupSource:
    """Source of the dashboard's history: live counts, and rollups for the time before these."""

    period: Period
    """Period of the rollups, which is as long as a time step of the chart."""

    def read_history(
        self, chosen: Range, now: datetime, consumer_id: int | None, shown: Collection[int]
    ) -> History:
        history = COUNTS.read_history(chosen, now, consumer_id, shown)
        positions = {
            point.start: position
            for position, point in enumerate(history.points)
            if history.known_from and point.start + chosen.step <= history.known_from
        }
        rows = _rollups(self.period, list(positions))
        for step in _sums(rows if consumer_id is None else rows.filter(consumer_id=consumer_id)):
            history.is_worst |= step.consumers > 1
            history.has_rollups = True
            point = history.points[positions[step.start]]
            point.is_whole = True
            for tally in (history.total, point):
                _add(tally, step)
        for step in _each(rows.filter(consumer_id__in=shown)):
            history.trends[step.consumers][positions[step.start]] += step.delivered + step.dead
            _add(history.consumers[step.consumers], step)
        return history

    def describe(self, history: History, chosen: Range) -> Iterator[str]:
        yield from COUNTS.describe(history, chosen)
        if history.has_rollups:
            yield _text("Earlier settlements are from the rollups of the lake.")
        if history.is_worst:
            yield (
                _text(
                    "There, percentiles are the highest of all consumers in each %s. Choose a "
                    "consumer to see its own."
                )
                % chosen.step_title
            )


PERIODS: Final = {HOUR: Period.HOUR, DAY: Period.DAY}
RANGES: Final = tuple(
    replace(chosen, source=RollupSource(PERIODS[chosen.step]))
    for chosen in ranges.RANGES
    if chosen.step in PERIODS
)


def _rollups(period: str, starts: Sequence[datetime]) -> QuerySet[Rollup]:
    return Rollup.objects.using(settings().DATABASE).filter(period=period, starts_at__in=starts)


def _sums(rows: QuerySet[Rollup]) -> Iterator[StepCount]:
    """Yield the sums of the rollups of each time step, with their highest percentiles.

    The database adds the rows up, because there may be thousands of consumers.
    """
    sums = (
        rows.order_by()
        .values_list("starts_at")
        .annotate(Count("pk"), *map(Sum, SUMMED), *map(Max, TIMES))
    )
    return map(_step_count, sums)


def _each(rows: QuerySet[Rollup]) -> Iterator[StepCount]:
    return map(_step_count, rows.values_list("starts_at", "consumer_id", *SUMMED, *TIMES))


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
