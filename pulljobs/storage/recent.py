"""What was settled of late, from the archive: bounded reads, and honest about what they cover."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from pulljobs import ids
from pulljobs.storage.statements import run

SPANS: Final = 6
"""In which a slice is read, so that what is read is from all over it."""
CAP: Final = 300
"""Settlements that are read of a span; if there are more, how many is estimated."""
TIMED: Final = 30
"""Settlements of a span of which the times are looked at."""

Quantiles = tuple[float, float, float]
"""Seconds at p50, p95 and p99."""


class Settled(NamedTuple):
    """Of a slice, of a consumer, of both; None: of all of them."""

    slice: int | None
    consumer_id: int | None
    delivered: float
    dead: float
    retries: float
    is_estimate: bool
    """There were more than were read."""
    waits: Quantiles | None
    runs: Quantiles | None
    """Of those that were looked at."""

    @property
    def settlements(self) -> float:
        return self.delivered + self.dead


class Slice(NamedTuple):
    """Of time; the end is not part of it."""

    start: datetime
    end: datetime

    def bounds(self) -> list[int]:
        """The lowest ids of its spans, and of what comes after."""
        low, high = ids.first_of(self.start), ids.first_of(self.end)
        return [low + (high - low) * number // SPANS for number in range(SPANS + 1)]


def settled(using: str, slices: Sequence[Slice]) -> list[Settled]:
    """Slices are numbered from 0 in what comes back."""
    rows: list[Settled] = run(using, "recent", params(slices), kind=Settled)
    return [row._replace(waits=_quantiles(row.waits), runs=_quantiles(row.runs)) for row in rows]


def params(slices: Sequence[Slice]) -> dict[str, Any]:
    """Of the statement."""
    bounds = [one.bounds() for one in slices]
    return {
        "lows": [low for one in bounds for low in one[:-1]],
        "highs": [high for one in bounds for high in one[1:]],
        "slices": [number for number, one in enumerate(bounds) for _low in one[:-1]],
        "first": min(one[0] for one in bounds),
        "last": max(one[-1] for one in bounds),
        "cap": CAP,
        "timed": TIMED,
    }


def _quantiles(seconds: Sequence[float | None] | None) -> Quantiles | None:
    """PostgreSQL says NULL of nothing at all; clocks that were set back make no time negative."""
    if not seconds or None in seconds:
        return None
    low, middle, high = (max(0.0, float(one or 0)) for one in seconds)
    return low, middle, high
