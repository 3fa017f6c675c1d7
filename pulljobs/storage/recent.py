"""Numbers of recent settlements over time, from a sample of the archive of bounded size."""

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, NamedTuple

from pulljobs import ids
from pulljobs.storage.statements import run

SPANS: Final = 6
"""Number of equal spans of a slice of time. Each is read, so the sample covers all of it."""
CAP: Final = 300
"""Maximum number of settlements read of a span. If there are more, their number is estimated."""


class Settled(NamedTuple):
    """Numbers of settlements in a slice of time, of a consumer, or both: a row of recent.sql.

    `slice` None stands for all slices, `consumer_id` None for all consumers.
    """

    slice: int | None
    consumer_id: int | None
    delivered: float
    dead: float
    retries: float
    is_estimate: bool
    """True if the numbers are estimated, because there were more settlements than were read."""

    @property
    def settlements(self) -> float:
        return self.delivered + self.dead


class Slice(NamedTuple):
    """Range of time from `start` until before `end`, for a column of a chart."""

    start: datetime
    end: datetime

    def bounds(self) -> list[int]:
        """Return the ids at the bounds of SPANS equal spans that make up this range of time."""
        low, high = ids.first_of(self.start), ids.first_of(self.end)
        return [low + (high - low) * number // SPANS for number in range(SPANS + 1)]


def settled(using: str, slices: Sequence[Slice]) -> list[Settled]:
    """Return the numbers of settlements by slice of time, numbered from 0, and by consumer."""
    return run(using, "recent", params(slices), kind=Settled)


def params(slices: Sequence[Slice]) -> dict[str, Any]:
    """Return the parameters of recent.sql for these slices of time."""
    spans = [
        (number, low, high)
        for number, each in enumerate(slices)
        for low, high in pairwise(each.bounds())
    ]
    numbers, lows, highs = map(list, zip(*spans, strict=True))
    return {
        "lows": lows,
        "highs": highs,
        "slices": numbers,
        "first": min(lows),
        "last": max(highs),
        "cap": CAP,
    }
