"""Delays before retries and before attempts to connect, and the back-off of a consumer."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from pulljobs.client import log
from pulljobs.client.argument_checks import check_counts, check_function, check_seconds

N = TypeVar("N", int, float)
Delay = Callable[[int], float]
"""Function that takes n and returns the seconds before the n-th repetition. The first n is 1."""

_HIGHEST_POWER: Final = 60


def linear(step: float, longest: float) -> Delay:
    """Return a function that delays repetition n by `step` * n seconds, at most `longest`."""
    return lambda n: min(step * n, longest)


def exponential(first: float, longest: float) -> Delay:
    """Return a function that gives the delays `first`, twice that, and so on, up to `longest`."""
    return lambda n: min(first * 2.0 ** min(n - 1, _HIGHEST_POWER), longest)


def full_jitter(delay: Delay, *, least: float = 0.0) -> Delay:
    """Return a function that delays repetition n by a random time from `least` to `delay(n)`."""
    return lambda n: random.uniform(least, max(least, delay(n)))


REQUEUE: Final = linear(90.0, 900.0)
RECONNECT: Final = full_jitter(exponential(2.0, 60.0), least=1.0)


def up_to(seconds: float) -> float:
    """Return a random number of seconds up to `seconds`. A `Backoff` can use this as `strategy`."""
    return random.uniform(0.0, seconds)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Back-off of a consumer whose messages fail in a row, as arguments of a circuit.

    After `after` messages have failed in a row, nothing is pulled for initial * 2 ** level seconds,
    at most `longest`. The level begins at 1. A failed probe raises it, a success lowers it. An
    `initial` or `longest` of 0 turns it off. `strategy` changes the seconds: `float` keeps them,
    `up_to` adds full jitter, and any other function may be given.
    """

    initial: float = 1.0
    longest: float = 120.0
    after: int = 5
    strategy: Callable[[float], float] = float

    def __post_init__(self) -> None:
        check_seconds("initial", self.initial)
        check_seconds("longest", self.longest)
        check_counts(1, after=self.after)
        check_function("strategy", self.strategy)


def guarded(
    name: str, strategy: Callable[[N], float], usual: Callable[[N], float]
) -> Callable[[N], float]:
    """Return a function that calls the user's `strategy`, and `usual` if that fails.

    The failure is logged with `name`. It would otherwise end the loop that asks for the delay.
    """

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
