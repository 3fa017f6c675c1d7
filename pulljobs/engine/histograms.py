"""Histograms of durations, whose quantiles are off by at most 1.5 %.

A bucket ends 3 % above its start, as in DDSketch (Masson, Rim and Lee, VLDB 2019). Histograms can
be added, so the quantiles of a day are as exact as those of a minute.
fragments/uncounted_settlements.sql computes the bucket of a duration.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

GROWTH: Final = 1.03
ERROR_PERCENT: Final = 1.5
ZERO: Final = -32768
"""Bucket of durations of less than 10 microseconds, which also has negative ones."""
QUANTILES: Final = (0.5, 0.95, 0.99)

Quantiles = tuple[float, float, float]
"""Seconds at p50, p95 and p99."""


class Histogram(Counter[int]):
    """Numbers of durations by bucket. `seconds_of` converts a bucket to seconds."""

    def add(self, buckets: Iterable[int], counts: Iterable[int]) -> None:
        """Add durations: the n-th number in `counts` to the n-th bucket in `buckets`."""
        for bucket, count in zip(buckets, counts, strict=True):
            self[bucket] += count

    def quantiles(self) -> Quantiles | None:
        """Return the seconds at p50, p95 and p99 by nearest rank, or None without durations."""
        if not self:
            return None
        buckets = sorted(self)
        reached = list(accumulate(map(self.__getitem__, buckets)))
        ranks = [math.ceil(share * reached[-1] - 1e-9) for share in QUANTILES]
        low, middle, high = (seconds_of(buckets[bisect_left(reached, rank)]) for rank in ranks)
        return low, middle, high


def seconds_of(bucket: int) -> float:
    """Return the seconds that stand for a bucket: its durations differ by at most 1.5 %."""
    return 0.0 if bucket == ZERO else 2 * GROWTH**bucket / (1 + GROWTH)
