"""Settlements over time, and the reader of the last hour from the archive."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pulljobs.conf import settings
from pulljobs.storage import recent
from pulljobs.storage.recent import Quantiles, Settled, Slice


@dataclass
class Tally:
    """Counts of settlements, or estimates if they were too many to read."""

    delivered: float = 0.0
    dead: float = 0.0
    retries: float = 0.0
    waits: Quantiles | None = None
    runs: Quantiles | None = None
    is_estimate: bool = False

    @property
    def settled(self) -> float:
        """Delivered and dead jobs."""
        return self.delivered + self.dead

    @property
    def failed_share(self) -> float | None:
        """Share of deaths, or None if nothing was settled."""
        return self.dead / self.settled if self.settled else None

    def count(self, delivered: float, dead: float, retries: float) -> None:
        """Add counts."""
        self.delivered += delivered
        self.dead += dead
        self.retries += retries


@dataclass
class Point(Tally):
    """Counts of one step."""

    start: datetime = field(kw_only=True)
    is_whole: bool = True
    """True if the step is over and was read completely."""


@dataclass
class History:
    """Settlements of a range, step by step and by consumer."""

    points: list[Point]
    known: timedelta
    """Length of the time that was counted."""
    total: Tally
    consumers: dict[int, Tally]
    trends: dict[int, list[float]]
    """Settlements of each consumer, step by step."""
    is_worst: bool = False
    """True if times are the highest of several consumers, since percentiles can't be merged."""
    known_until: datetime | None = None
    """Time up to which the source counted settlements, if it lags, or None if it counted none."""

    @property
    def is_estimate(self) -> bool:
        """True if a count is an estimate."""
        return any(point.is_estimate for point in self.points)


def read_archive(
    slices: Sequence[Slice], step: timedelta, consumer_id: int | None = None
) -> History:
    """Return the settlements of a consumer, or of all, from the archive."""
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
    """Return a history without settlements."""
    points = [Point(start=part.start, is_whole=part.end - part.start == step) for part in slices]
    known = slices[-1].end - slices[0].start
    trends: dict[int, list[float]] = defaultdict(lambda: [0.0] * len(slices))
    return History(points, known, Tally(), defaultdict(Tally), trends)


def _take(tally: Tally, row: Settled) -> None:
    tally.count(row.delivered, row.dead, row.retries)
    tally.waits, tally.runs, tally.is_estimate = row.waits, row.runs, row.is_estimate
