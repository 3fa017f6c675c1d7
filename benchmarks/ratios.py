"""Ratios of two paired series of measurements, with confidence intervals."""

from collections.abc import Sequence
from math import exp, log, sqrt
from statistics import fmean, stdev
from typing import Final, NamedTuple

# fmt: off
T_QUANTILES: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)
"""Quantile 0.975 of Student's t distribution for 1 to 30 degrees of freedom."""
# fmt: on


class Ratio(NamedTuple):
    """Geometric mean of paired ratios, with the ends of its 95 % confidence interval."""

    mean: float
    low: float
    high: float


def paired_ratio(old: Sequence[float], new: Sequence[float]) -> Ratio:
    """Return the mean ratio new/old of runs that were measured in pairs, two pairs or more.

    The interval is Student's t interval of the mean of log(new/old), carried back by exp. A pair
    shares what the machine did at its time, so this load cancels (R. Jain, The Art of Computer
    Systems Performance Analysis, 1991, section 13.4.1, paired observations). The mean of ratios is
    geometric: it does not depend on which side is called old (P. J. Fleming and J. J. Wallace, How
    not to lie with statistics, CACM 29(3), 1986). Above 31 pairs the quantile of 31 pairs is used,
    so the interval is slightly too wide.
    """
    logs = [log(after / before) for before, after in zip(old, new, strict=True)]
    quantile = T_QUANTILES[min(len(logs) - 1, len(T_QUANTILES)) - 1]
    center, margin = fmean(logs), quantile * stdev(logs) / sqrt(len(logs))
    return Ratio(exp(center), exp(center - margin), exp(center + margin))
