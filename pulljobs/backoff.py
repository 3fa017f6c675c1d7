"""Retry delays, written as text, stored as data.

    none                       never
    constant:10                10 s each time
    linear:1+2                 1, 3, 5, ... s
    exponential:1              1, 2, 4, ... s, at most 300
    exponential:1x3<60         1, 3, 9, ... s, at most 60
    5,30,60                    5, 30, 60, then 120, 180, ...: (n - length + 1) x last

A consumer keeps the text and what it expands to: an array of seconds and a cap, from which SQL
takes the n-th delay, the same for REST, worker and reaper. Jitter is added there, inside the cap.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

LONGEST: Final = 365 * 86400.0
EXPONENTIAL_CAP: Final = 300.0
_ENTRIES: Final = 64
_NUMBER: Final = r"(\d+(?:\.\d+)?)"
_STRATEGY: Final = re.compile(
    rf"(?P<name>constant|linear|exponential):{_NUMBER}"
    rf"(?:\+(?P<step>\d+(?:\.\d+)?))?(?:x(?P<factor>\d+(?:\.\d+)?))?(?:<(?P<cap>\d+(?:\.\d+)?))?"
)


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds before each retry; past the end (n - length + 1) x last, never above the cap."""

    seconds: tuple[float, ...]
    cap: float = LONGEST

    def before(self, retry: int) -> float:
        """What SQL computes for the retry-th retry (from 1), jitter left out."""
        if not self.seconds:
            return 0.0
        length = len(self.seconds)
        if retry <= length:
            return min(self.seconds[retry - 1], self.cap)
        return min((retry - length + 1) * self.seconds[-1], self.cap)


NEVER: Final = "none"


def expand(text: str) -> Delays:
    """The delays a strategy stands for; ValueError, with the forms, for any other text."""
    text = text.replace(" ", "")
    if text == NEVER:
        return Delays(())
    strategy = _STRATEGY.fullmatch(text)
    if strategy is None:
        return Delays(_listed(text))
    first, name = float(strategy[2]), strategy["name"]
    if name == "constant":
        return Delays((first,), cap=first)
    if name == "linear":
        cap = float(strategy["cap"] or LONGEST)
        return Delays(_ladder(_linear(first, float(strategy["step"] or first)), cap), cap)
    cap = float(strategy["cap"] or EXPONENTIAL_CAP)
    return Delays(_ladder(_exponential(first, float(strategy["factor"] or 2.0)), cap), cap)


def _listed(text: str) -> tuple[float, ...]:
    try:
        seconds = tuple(float(item) for item in text.split(","))
    except ValueError:
        seconds = ()
    if not seconds or not all(0 <= item <= LONGEST for item in seconds):
        raise ValueError(
            f"{text!r} is no retry strategy: write none, constant:10, linear:1+2, exponential:1, "
            "exponential:1x3<60 or a list of seconds such as 5,30,60."
        )
    return seconds


def _linear(first: float, step: float) -> Iterator[float]:
    while True:
        yield first
        first += step


def _exponential(first: float, factor: float) -> Iterator[float]:
    while True:
        yield first
        first = min(first * factor, LONGEST)


def _ladder(rungs: Iterator[float], cap: float) -> tuple[float, ...]:
    """The rungs below the cap and the cap itself, or as many as a consumer can use."""
    ladder: list[float] = []
    for seconds in islice(rungs, _ENTRIES):
        ladder.append(min(seconds, cap))
        if seconds >= cap:
            break
    return tuple(ladder)
