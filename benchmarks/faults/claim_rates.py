"""Rates of claims: replay of the token bucket of each consumer over the times in the tables."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pulljobs.rates import parse_rate

ROUNDING: Final = 1e-5
"""Seconds by which a time in the tables may be off."""
LEAST: Final = 0.01
"""Tokens that rounding may hide."""


class ClaimRate(NamedTuple):
    """Rate of each consumer of a run."""

    per_second: float
    burst: float


class TimedClaim(NamedTuple):
    """Claim of one job, with times of the database's clock in seconds."""

    consumer: int
    claimed_at: float
    released_at: float | None = None
    """Time of a release, which gives the token back."""


def make_rate(text: str) -> ClaimRate | None:
    """Return the rate of a text such as 100/s with its default burst, or None without a rate."""
    per_second = parse_rate(text)
    return None if per_second is None else ClaimRate(per_second, max(per_second, 1.0))


def find_overdrafts(claims: Sequence[TimedClaim], rate: ClaimRate) -> Iterator[str]:
    """Yield a sentence for each consumer of which more jobs were claimed than its bucket had."""
    by_consumer: dict[int, list[TimedClaim]] = defaultdict(list)
    for claim in claims:
        by_consumer[claim.consumer].append(claim)
    for consumer, own in by_consumer.items():
        at, level = min(_replay(own, rate), key=lambda moment: moment[1])
        if level < -(LEAST + ROUNDING * rate.per_second):
            yield f"consumer {consumer} had {-level:.2f} jobs above its rate at {at:.3f}"


def _replay(claims: Sequence[TimedClaim], rate: ClaimRate) -> Iterator[tuple[float, float]]:
    """Yield the time and the tokens that are left after each claim.

    A bucket that claims have written is never fuller than this one: it is filled up to a time after
    that of the claim.
    """
    changes = [(claim.claimed_at, -1) for claim in claims]
    changes += [(claim.released_at, 1) for claim in claims if claim.released_at is not None]
    # Of changes at one time a release comes first: no order of the events is then impossible.
    changes.sort(key=lambda change: (change[0], -change[1]))
    level, last = rate.burst, changes[0][0]
    for at, change in changes:
        filled = min(rate.burst, level + rate.per_second * (at - last))
        level, last = min(rate.burst, filled + change), at
        yield at, level
