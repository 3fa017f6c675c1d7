"""How long to wait before the next time."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from pulljobs.client import log

N = TypeVar("N", int, float)
Delay = Callable[[int], float]
"""Seconds before the n-th repetition, n from 1."""

_HIGHEST_POWER: Final = 60


def linear(step: float, longest: float) -> Delay:
    return lambda n: min(step * n, longest)


def exponential(first: float, longest: float) -> Delay:
    return lambda n: min(first * 2.0 ** min(n - 1, _HIGHEST_POWER), longest)


def full_jitter(delay: Delay, *, least: float = 0.0) -> Delay:
    """Anything between the least and what the other says."""
    return lambda n: random.uniform(least, max(least, delay(n)))


REQUEUE: Final = linear(90.0, 900.0)
RECONNECT: Final = full_jitter(exponential(2.0, 60.0), least=1.0)


def up_to(seconds: float) -> float:
    """Full jitter, for a `Backoff`."""
    return random.uniform(0.0, seconds)


@dataclass(frozen=True, slots=True)
class Backoff:
    """When handlers fail `after` times in a row, nothing is pulled for initial x 2^level seconds.

    Never for longer than the longest; an `initial` or `longest` of 0 turns it off. `strategy` makes
    of those seconds what is waited: all of them, `up_to` as many, or a function of yours.
    """

    initial: float = 1.0
    longest: float = 120.0
    after: int = 5
    strategy: Callable[[float], float] = float


def guarded(
    name: str, strategy: Callable[[N], float], usual: Callable[[N], float]
) -> Callable[[N], float]:
    """What runs without end must not end by a function of the user's: where it fails, the usual."""

    def seconds(given: N) -> float:
        try:
            told = float(strategy(given))
            if math.isnan(told):
                raise ValueError("That is no number of seconds.")
        except Exception as error:
            log.strategy_failed(name, error)
            return usual(given)
        return told

    return seconds
