"""Rates, written as text, stored as jobs a second.

    10/s      10 a second
    100/m     100 a minute
    5000/h    5,000 an hour
    1/d       1 a day

The units are the second, the minute, the hour and the day.
"""

import re
from typing import Final

MOST: Final = 1_000_000
"""Highest rate a second, largest burst and highest cost of a job."""
SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_RATE: Final = re.compile(r"([0-9]{1,12})/([smhd])")


def parse_rate(text: str) -> float | None:
    """Return the jobs a second of a rate, or None for an empty text.

    Raise ValueError for other text, for a rate of 0, and above `MOST` jobs a second.
    """
    if not text:
        return None
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is no rate: write a whole number and a unit of time, such as 10/s, 100/m, "
            "5000/h or 1/d."
        )
    jobs, seconds = int(match[1]), SECONDS[match[2]]
    if not jobs:
        raise ValueError(f"{text!r} allows no job: write at least 1; to stop claims, pause.")
    if jobs > MOST * seconds:
        raise ValueError(f"{text!r} is above {MOST:,} a second: leave the rate empty for no limit.")
    return jobs / seconds


def window_seconds(rate: str) -> int:
    """Return the seconds of the unit of a valid rate, such as 60 for `100/m`."""
    return SECONDS[rate[-1]]


def check_limit(rate: str, burst: int | None, *, window: bool) -> None:
    """Raise ValueError unless the rate is valid or empty, and burst and window fit it.

    `burst` is the size of the token bucket. `window` means fixed windows in place of a bucket.
    """
    has_rate = parse_rate(rate) is not None
    if not has_rate and burst is not None:
        raise ValueError(f"The burst {burst} needs a rate: set the rate, or leave the burst empty.")
    if not has_rate and window:
        raise ValueError("A window needs a rate: set the rate, or leave the window out.")
    if window and burst is not None:
        raise ValueError(
            f"A window has no burst, which is {burst}: a rate of 100/m allows 100 in each minute. "
            "Leave the burst empty, or the window out."
        )
    if burst is not None and not 1 <= burst <= MOST:
        raise ValueError(f"The burst must be from 1 to {MOST:,}, not {burst:,}.")
