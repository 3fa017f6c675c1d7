"""Quantiles of histograms are as exact as they say."""

import random
from math import ceil, log

import pytest

from pulljobs.engine.histograms import ERROR_PERCENT, GROWTH, ZERO, Histogram, seconds_of


def bucket_of(seconds: float) -> int:
    """Return the number of the bucket of a duration, as the statement that counts computes it."""
    return ZERO if seconds < 1e-5 else ceil(log(seconds) / log(GROWTH))


@pytest.mark.parametrize("count", [1, 2, 3, 20, 999])
def test_quantiles_are_off_by_at_most_their_error(count: int) -> None:
    durations = sorted(random.Random(count).lognormvariate(0, 3) for _ in range(count))
    histogram = Histogram()
    for duration in durations:
        histogram.add([bucket_of(duration)], [1])
    exact = [durations[ceil(share * count - 1e-9) - 1] for share in (0.5, 0.95, 0.99)]
    assert histogram.quantiles() == pytest.approx(exact, rel=ERROR_PERCENT / 100)


def test_histograms_can_be_added() -> None:
    histogram = Histogram()
    histogram.add([3, 5], [10, 1])
    histogram.add([5, 700], [88, 1])
    assert histogram.quantiles() == (seconds_of(5), seconds_of(5), seconds_of(5))
    assert histogram.total() == 100


def test_no_duration_has_no_quantiles_and_none_is_negative() -> None:
    histogram = Histogram()
    assert histogram.quantiles() is None
    histogram.add([bucket_of(-3.0)], [2])
    assert histogram.quantiles() == (0.0, 0.0, 0.0)
