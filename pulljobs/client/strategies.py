"""Delays before repetitions, and the back-off of a consumer."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from pulljobs.client import log

N = TypeVar("N", int, float)
Delay = Callable[[int], float]
"""Function that returns the seconds before the n-th repetition, n from 1."""

_HIGHEST_POWER: Final = 60


def linear(step: float, longest: float) -> Delay:
    """Make a delay of `step` seconds times n, at most `longest`."""
    return lambda n: min(step * n, longest)


def exponential(first: float, longest: float) -> Delay:
    """Make a delay of `first` seconds that doubles with n, at most `longest`."""
    return lambda n: min(first * 2.0 ** min(n - 1, _HIGHEST_POWER), longest)


def full_jitter(delay: Delay, *, least: float = 0.0) -> Delay:
    """Make a random delay between `least` and another delay."""
    return lambda n: random.uniform(least, max(least, delay(n)))


REQUEUE: Final = linear(90.0, 900.0)
RECONNECT: Final = full_jitter(exponential(2.0, 60.0), least=1.0)


def up_to(seconds: float) -> float:
    """Return a random number of seconds up to `seconds`: full jitter for a `Backoff`."""
    return random.uniform(0.0, seconds)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Back-off after failures in a row: nothing is pulled for initial * 2 ** level seconds.

    It begins after `after` failures and never lasts longer than `longest`. An `initial` or
    `longest` of 0 turns it off. `strategy` changes the seconds: `float` keeps them, `up_to` adds
    full jitter, and any other function may be given.
    """

    initial: float = 1.0
    longest: float = 120.0
    after: int = 5
    strategy: Callable[[float], float] = float


def guarded(
    name: str, strategy: Callable[[N], float], usual: Callable[[N], float]
) -> Callable[[N], float]:
    """Protect an endless loop from a function of the user: use the default if it fails."""

    def seconds(given: N) -> float:
        try:
            chosen = float(strategy(given))
            if math.isnan(chosen):
                raise ValueError("The strategy returned NaN, which is no number of seconds.")
        except Exception as error:
            log.strategy_failed(name, log.describe(error))
            return usual(given)
        return chosen

    return seconds
