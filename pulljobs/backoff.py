"""Retry delays, written as text, stored as data.

    none                       no retry: the first failure makes the job DEAD
    constant:10                10 s each time
    linear:1+2                 1, 3, 5, ... s
    exponential:1              1, 2, 4, ... s, at most 300
    exponential:1x3<60         1, 3, 9, ... s, at most 60
    5,30,60                    5, 30, 60, then 120, 180, ...: (n - length + 1) x last

(n is the number of the retry, length that of the delays.) A strategy expands to at most 200
delays, none above a year. A consumer stores the text and what it expands to: an array of seconds,
and a cap that no delay exceeds. `finish.sql` takes the n-th delay, and adds jitter within the cap.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice, repeat
from typing import Final

LONGEST: Final = 365 * 86400.0
EXPONENTIAL_CAP: Final = 300.0
_MOST_DELAYS: Final = 200
_NUMBER: Final = r"(\d+(?:\.\d+)?)"
_CONSTANT: Final = re.compile(rf"constant:{_NUMBER}")
_LINEAR: Final = re.compile(rf"linear:{_NUMBER}(?:\+{_NUMBER})?(?:<{_NUMBER})?")
_EXPONENTIAL: Final = re.compile(rf"exponential:{_NUMBER}(?:x{_NUMBER})?(?:<{_NUMBER})?")


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds before the first, second, ... retry, at most `cap` each. Empty means no retry."""

    seconds: tuple[float, ...]
    cap: float = LONGEST

    def before(self, retry: int) -> float:
        """Return the seconds before a retry, of which the first is number 1, without jitter."""
        if not self.seconds:
            return 0.0
        length = len(self.seconds)
        if retry <= length:
            return min(self.seconds[retry - 1], self.cap)
        return min((retry - length + 1) * self.seconds[-1], self.cap)


NEVER: Final = "none"


def expand(text: str) -> Delays:
    """Return the delays in seconds of a retry strategy, such as "exponential:1x3<60" or "5,30".

    Raise ValueError, which names the valid forms, for any other text.
    """
    text = text.replace(" ", "")
    if text == NEVER:
        return Delays(())
    if match := _CONSTANT.fullmatch(text):
        return _rising(repeat(float(match[1])), LONGEST)
    if match := _LINEAR.fullmatch(text):
        return _rising(count(float(match[1]), float(match[2] or match[1])), match[3] or LONGEST)
    if match := _EXPONENTIAL.fullmatch(text):
        powers = _exponential(float(match[1]), float(match[2] or 2))
        return _rising(powers, match[3] or EXPONENTIAL_CAP)
    return Delays(_listed(text))


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


def _exponential(first: float, factor: float) -> Iterator[float]:
    while True:
        yield first
        first = min(first * factor, LONGEST)


def _rising(endless: Iterator[float], highest: str | float) -> Delays:
    """Return the first delays of an endless series, each at most `highest`, while they rise."""
    delays: list[float] = []
    cap = min(float(highest), LONGEST)
    for seconds in islice(endless, _MOST_DELAYS):
        if delays and min(seconds, cap) <= delays[-1]:
            break
        delays.append(min(seconds, cap))
    return Delays(tuple(delays), cap=delays[-1])
