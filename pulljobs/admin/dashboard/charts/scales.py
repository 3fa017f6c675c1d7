"""From a figure to its height: 0 at the bottom, 1 at the top."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

STEPS: Final = (1.0, 2.0, 5.0, 10.0)
MOST_STEPS: Final = 4
DURATIONS: Final = (
    1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 6 * 3600.0, 86_400.0, 7 * 86_400.0,
    60 * 86_400.0,
)  # fmt: skip
"""Seconds at which people think."""


@dataclass(frozen=True)
class Scale:
    ticks: tuple[float, ...]
    """From the lowest to the highest, which are the ends of the scale."""
    measure: Callable[[float], float]

    def share(self, value: float) -> float:
        low, high = self.measure(self.ticks[0]), self.measure(self.ticks[-1])
        at = (self.measure(max(value, self.ticks[0])) - low) / (high - low)
        return min(1.0, at)


def linear(highest: float) -> Scale:
    """From nothing to a round figure at the highest or above, in a few round steps."""
    step = _round_step(max(highest, 1.0) / MOST_STEPS)
    count = max(1, math.ceil(max(highest, 1.0) / step - 1e-9))
    return Scale(tuple(step * number for number in range(count + 1)), float)


def durations(seconds: Sequence[float]) -> Scale:
    """Logarithmic, for a p50 of milliseconds and a p99 of minutes are both worth a look."""
    known = [one for one in seconds if one > 0] or [0.01, 1.0]
    low = max((tick for tick in DURATIONS if tick <= min(known)), default=DURATIONS[0])
    high = min((tick for tick in DURATIONS if tick >= max(known)), default=DURATIONS[-1])
    if low >= high:
        low = DURATIONS[max(0, DURATIONS.index(high) - 1)]
        high = DURATIONS[DURATIONS.index(low) + 1]
    return Scale(tuple(tick for tick in DURATIONS if low <= tick <= high), math.log)


def _round_step(least: float) -> float:
    size = 10.0 ** math.floor(math.log10(least))
    step = next(size * step for step in STEPS if size * step >= least - 1e-9)
    return step if step >= 1 else 1.0
