"""Settlements over time: counts by time step and by consumer, for charts and tables.

They are read from stored counts, and those of `pulljobs top` from the archive itself.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from pulljobs.conf import settings
from pulljobs.engine.histograms import Histogram, Quantiles
from pulljobs.engine.sql import Row
from pulljobs.models.counts import CountPeriod
from pulljobs.storage import recent, settlement_history
from pulljobs.storage.recent import Settled, Slice
from pulljobs.storage.settlement_history import CountSpan, StoredCounts

MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
PERIODS: Final = {
    MINUTE: CountPeriod.MINUTE.value,
    HOUR: CountPeriod.HOUR.value,
    DAY: CountPeriod.DAY.value,
}
WIDER: Final = {MINUTE: HOUR, HOUR: DAY}
DRAWN: Final = 1
TRENDS: Final = 2
"""Numbers of the first two spans that `read_counts` reads.

The first has the counts and times of the chart, the second the settlements of each listed consumer
by step. All further spans are sums by consumer.
"""


@dataclass
class Tally:
    """Settlements in a period, retries of the settled jobs, percentiles of wait and run times."""

    delivered: float = 0.0
    dead: float = 0.0
    retries: float = 0.0
    waits: Quantiles | None = None
    """Times from the creation of jobs to their claim, of those that their first claim settled."""
    runs: Quantiles | None = None
    is_estimate: bool = False
    """True if the settlements were too many to read, so that the counts are estimates."""

    @property
    def settled(self) -> float:
        """Number of settlements: delivered and dead jobs."""
        return self.delivered + self.dead

    @property
    def failed_share(self) -> float | None:
        """Share of dead jobs among the settlements, 0 to 1, or None if there is no settlement."""
        return self.dead / self.settled if self.settled else None

    def count(self, delivered: float, dead: float, retries: float) -> None:
        """Add these counts to the sums."""
        self.delivered += delivered
        self.dead += dead
        self.retries += retries


@dataclass
class Point(Tally):
    """Counts of one time step of a range, such as an hour, drawn as one column of a chart."""

    start: datetime = field(kw_only=True)
    is_whole: bool = True
    """True if the time step is over and was read completely."""


@dataclass
class History:
    """Settlements of a time range: of each time step, in total, and of each listed consumer."""

    points: list[Point]
    total: Tally
    consumers: dict[int, Tally]
    trends: dict[int, list[float]]
    """Number of settlements in each time step, by primary key of each listed consumer."""
    is_worst: bool = False
    """True if the percentiles are the highest of several consumers, as rollups can't be merged."""
    has_rollups: bool = False
    """True if figures before `known_from` are from the rollups of a lake."""
    known_from: datetime | None = None
    """Time from which settlements are known, if it is within the range."""
    known_until: datetime | None = None
    """Time up to which settlements are known, or None if all are."""

    @property
    def is_estimate(self) -> bool:
        """True if the counts of any time step are estimates."""
        return any(point.is_estimate for point in self.points)


def read_counts(
    slices: Sequence[Slice], step: timedelta, consumer_id: int | None, shown: Collection[int]
) -> History:
    """Return the history of a consumer (None: of all) from counts stored by minute, hour or day.

    It also has the sum and the counts by time step of each consumer whose id is in `shown`.
    Settlements that these counts do not have yet are read from the archive, up to a largest number.
    """
    start, end = slices[0].start, slices[-1].start + step
    period = PERIODS[step]
    spans = [
        CountSpan(period, start, end, is_drawn=True, with_times=True),
        CountSpan(period, start, end, is_drawn=False, with_times=False),
        *_cover(start, end, step),
    ]
    counted = settlement_history.read_counts(settings().DATABASE, spans, consumer_id, shown)
    history = make_empty(slices, step)
    tally = _CountsTally(history, start, step, consumer_id, shown)
    for row in counted.rows:
        tally.take(row)
    tally.measure()
    _mark_unknown(history, counted, start, step)
    return history


def _cover(start: datetime, end: datetime, step: timedelta) -> Iterator[CountSpan]:
    """Yield the few spans of stored counts from which the sums of a range can be read.

    A range in steps of minutes, for example, has minutes up to the first full hour, then hours.
    """
    if wider := WIDER.get(step):
        whole = min(end, start + (EPOCH - start) % wider)
        yield CountSpan(PERIODS[step], start, whole, is_drawn=False, with_times=True)
        start, step = whole, wider
    yield CountSpan(PERIODS[step], start, end, is_drawn=False, with_times=True)


class _CountsTally:
    """Accumulator that adds the rows of stored counts to a history."""

    def __init__(
        self,
        history: History,
        start: datetime,
        step: timedelta,
        consumer_id: int | None,
        shown: Collection[int],
    ) -> None:
        self._history, self._start, self._step = history, start, step
        self._consumer_id, self._shown = consumer_id, shown
        self._times: dict[int, Times] = defaultdict(Times)
        """Histograms of each time step, by its index in `points` of the history."""
        self._times_of_consumers: dict[int, Times] = defaultdict(Times)

    def take(self, row: Row) -> None:
        """Add a row of settlement_history.sql to the sums that its column `span` stands for.

        These are the sums of the chart, or of a listed consumer. A row without a span has
        settlements that no stored count has yet, and is added to all sums of its consumer.
        """
        number = min((row.starts_at - self._start) // self._step, len(self._history.points) - 1)
        if number < 0:
            return
        is_late = row.span is None
        is_of_drawn = self._consumer_id in (None, row.consumer_id)
        if row.span == DRAWN or (is_late and is_of_drawn):
            for tally in (self._history.total, self._history.points[number]):
                tally.count(row.delivered, row.dead, row.retries)
            self._times[number].add(row)
        is_listed = row.consumer_id in self._shown
        if row.span == TRENDS or (is_late and is_listed):
            self._history.trends[row.consumer_id][number] += row.delivered + row.dead
        if row.span not in (DRAWN, TRENDS, None) or (is_late and is_listed):
            tally = self._history.consumers[row.consumer_id]
            tally.count(row.delivered, row.dead, row.retries)
            self._times_of_consumers[row.consumer_id].add(row)

    def measure(self) -> None:
        """Set the percentiles of all time steps and consumers, once every row has been taken."""
        for number, times in self._times.items():
            times.measure(self._history.points[number])
        for consumer_id, times in self._times_of_consumers.items():
            times.measure(self._history.consumers[consumer_id])


class Times:
    """Sums of the stored histograms of wait and run times, for a time step or a consumer."""

    def __init__(self) -> None:
        self.waits, self.runs = Histogram(), Histogram()

    def add(self, row: Row) -> None:
        """Add the histograms of a row of settlement_history.sql."""
        self.waits.add(row.wait_buckets or (), row.wait_jobs or ())
        self.runs.add(row.run_buckets or (), row.run_jobs or ())

    def measure(self, tally: Tally) -> None:
        """Set the percentiles of a tally from these histograms."""
        tally.waits, tally.runs = self.waits.quantiles(), self.runs.quantiles()


def _mark_unknown(
    history: History, counted: StoredCounts, start: datetime, step: timedelta
) -> None:
    """Set the bounds of the known settlements, and clear `is_whole` of points not within them."""
    if counted.counted_from is not None and counted.counted_from > start:
        history.known_from = counted.counted_from
    history.known_until = counted.known_until
    for point in history.points:
        if counted.known_until is not None and point.start + step > counted.known_until:
            point.is_whole = False
        if counted.counted_from is not None and point.start < counted.counted_from:
            point.is_whole = False


def read_archive(
    slices: Sequence[Slice], step: timedelta, consumer_id: int | None = None
) -> History:
    """Return the counts of settlements of a consumer (None: of all), from rows of the archive.

    The history has a point for each slice of time, of `step` at most. Counts of a slice with too
    many rows to read are estimates. The percentiles of wait and run times are left out.
    """
    history = make_empty(slices, step)
    for row in recent.settled(settings().DATABASE, slices):
        if row.slice is not None and row.consumer_id is not None:
            history.trends[row.consumer_id][row.slice] = row.settlements
        elif row.consumer_id is not None:
            _take(history.consumers[row.consumer_id], row)
        if row.consumer_id == consumer_id:
            _take(history.total if row.slice is None else history.points[row.slice], row)
    return history


def make_empty(slices: Sequence[Slice], step: timedelta) -> History:
    """Return a history in which all counts are 0, with a point for each slice of time."""
    points = [Point(start=part.start, is_whole=part.end - part.start == step) for part in slices]
    trends: dict[int, list[float]] = defaultdict(lambda: [0.0] * len(slices))
    return History(points, Tally(), defaultdict(Tally), trends)


def _take(tally: Tally, row: Settled) -> None:
    tally.count(row.delivered, row.dead, row.retries)
    tally.is_estimate = row.is_estimate
