"""What was settled of late, from the archive: bounded reads, and honest about what they cover."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from pulljobs import ids
from pulljobs.storage.statements import run

CAP: Final = 300
"""Settlements that are read of a slice."""

Quantiles = tuple[float, float, float]
"""Seconds at p50, p95 and p99."""


class Settled(NamedTuple):
    """What was read of a slice, of a consumer, of both (None: all of them)."""

    slice: int | None
    consumer_id: int | None
    delivered: int
    dead: int
    retries: int
    last_id: int
    waits: Quantiles | None
    runs: Quantiles | None

    @property
    def settlements(self) -> int:
        return self.delivered + self.dead


class Slice(NamedTuple):
    """Of time; the end is not part of it."""

    start: datetime
    end: datetime

    def seen(self, settled: Settled) -> float:
        """The share of it that was read, by all that was read of it: 1, or less where capped."""
        if settled.settlements < CAP:
            return 1.0
        reached = ids.time_of(settled.last_id) + timedelta(milliseconds=1) - self.start
        return min(1.0, reached / (self.end - self.start))


def settled(using: str, slices: Sequence[Slice]) -> list[Settled]:
    """Slices are numbered from 0 in what comes back."""
    lows = [ids.first_of(one.start) for one in slices]
    highs = [ids.first_of(one.end) for one in slices]
    params = {"lows": lows, "highs": highs, "first": min(lows), "last": max(highs), "cap": CAP}
    return list(_rows(run(using, "recent", params)))


def _rows(found: Sequence[tuple[object, ...]]) -> Iterator[Settled]:
    for row in map(Settled._make, found):
        yield row._replace(
            slice=None if row.slice is None else row.slice - 1,
            waits=_quantiles(row.waits),
            runs=_quantiles(row.runs),
        )


def _quantiles(seconds: Sequence[float | None] | None) -> Quantiles | None:
    """PostgreSQL says NULL of nothing at all; clocks that were set back make no time negative."""
    if not seconds or None in seconds:
        return None
    low, middle, high = (max(0.0, float(one or 0)) for one in seconds)
    return low, middle, high
