"""Rates of claims: replay of the bucket of each consumer over the times in the tables."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pulljobs.rates import parse_rate, window_seconds

ROUNDING: Final = 1e-5
"""Seconds by which a time in the tables may be off."""
LEAST: Final = 0.01
"""Tokens that rounding may hide."""
USED_SHARE: Final = 0.95
"""Share of the allowance that claims take at least, while work waits and nothing disturbs them."""
LEAST_BUSY: Final = 3.0
"""Seconds for which work has to wait before the share is judged."""


class ClaimRate(NamedTuple):
    """Rate of each consumer of a run, or of all of them together."""

    per_second: float
    burst: float
    window: float | None = None
    """Length of the fixed window in seconds. None: a token bucket."""
    is_shared: bool = False
    """True if the consumers share a bucket."""
    is_by_key: bool = False
    """True if each key of a consumer has a bucket."""
    costs: Mapping[int, int] = {}
    """Cost of each job that costs more than a token."""

    def price(self, claim: "TimedClaim") -> float:
        """Return the tokens that the claim takes."""
        return min(float(self.costs.get(claim.job, 1)), self.burst)


class TimedClaim(NamedTuple):
    """Claim of one job, with times of the database's clock in seconds."""

    consumer: int
    claimed_at: float
    released_at: float | None = None
    """Time of a release, which gives the tokens back."""
    job: int = 0
    created_at: float | None = None
    """Time of the publish, or None for a job that was not due at once or was claimed before."""
    key: str | None = None


def make_rate(text: str, *, window: bool = False, shared: bool = False) -> ClaimRate | None:
    """Return the rate of a text such as 100/s with its default burst, or None without a rate."""
    per_second = parse_rate(text)
    if per_second is None:
        return None
    if window:
        length = window_seconds(text)
        return ClaimRate(per_second, round(per_second * length), length, shared)
    return ClaimRate(per_second, max(per_second, 1.0), None, shared)


def find_overdrafts(claims: Sequence[TimedClaim], rate: ClaimRate) -> Iterator[str]:
    """Yield a sentence for each consumer of which more was claimed than its bucket had."""
    replay = _replay if rate.window is None else _replay_windows
    for consumer, own in _by_bucket(claims, rate).items():
        at, level = min(replay(own, rate), key=lambda moment: moment[1])
        if level < -(LEAST + ROUNDING * rate.per_second):
            yield f"{consumer} had {-level:.2f} tokens above its rate at {at:.3f}"


def used_share(claims: Sequence[TimedClaim], rate: ClaimRate) -> float | None:
    """Return the least share of the allowance that was used while work waited.

    Of each bucket it judges the longest time in which a job waited at every instant, and ends it
    with the last claim in that time. None: no work waited for long enough.
    """
    shares = []
    for own in _by_bucket(claims, rate).values():
        since, until = _longest_queue(own)
        if until - since >= LEAST_BUSY:
            taken = sum(
                rate.price(claim)
                for claim in own
                if since <= claim.claimed_at <= until and claim.released_at is None
            )
            shares.append(taken / (rate.per_second * (until - since)))
    return min(shares, default=None)


def _by_bucket(claims: Sequence[TimedClaim], rate: ClaimRate) -> dict[str, list[TimedClaim]]:
    buckets: dict[str, list[TimedClaim]] = defaultdict(list)
    for claim in claims:
        buckets[_bucket_of(claim, rate)].append(claim)
    return buckets


def _bucket_of(claim: TimedClaim, rate: ClaimRate) -> str:
    if rate.is_shared:
        return "the group"
    key = f", key {claim.key}" if rate.is_by_key else ""
    return f"consumer {claim.consumer}{key}"


def _longest_queue(claims: Sequence[TimedClaim]) -> tuple[float, float]:
    """Return begin and end of the longest time in which jobs waited for their first claim."""
    waits = [
        (claim.created_at, claim.claimed_at) for claim in claims if claim.created_at is not None
    ]
    longest, begin, end = (0.0, 0.0), 0.0, float("-inf")
    for since, until in sorted(waits):
        if since > end:
            begin = since
        end = max(end, until)
        if end - begin > longest[1] - longest[0]:
            longest = begin, end
    return longest


def _replay(claims: Sequence[TimedClaim], rate: ClaimRate) -> Iterator[tuple[float, float]]:
    """Yield the time and the tokens that are left after each claim.

    A bucket that claims have written is never fuller than this one: it is filled up to a time after
    that of the claim.
    """
    changes = [(claim.claimed_at, -rate.price(claim)) for claim in claims]
    changes += [
        (claim.released_at, rate.price(claim)) for claim in claims if claim.released_at is not None
    ]
    # Of changes at one time a release comes first: no order of the events is then impossible.
    changes.sort(key=lambda change: (change[0], -change[1]))
    level, last = rate.burst, changes[0][0]
    for at, change in changes:
        filled = min(rate.burst, level + rate.per_second * (at - last))
        level, last = min(rate.burst, filled + change), at
        yield at, level


def _replay_windows(claims: Sequence[TimedClaim], rate: ClaimRate) -> Iterator[tuple[float, float]]:
    """Yield the begin of each window, and what is left of its number at the end.

    A job that was claimed in a window and released there does not count.
    """
    length = rate.window or 1.0
    taken: dict[float, float] = defaultdict(float)
    for claim in claims:
        window = claim.claimed_at // length
        if claim.released_at is None or claim.released_at // length != window:
            taken[window] += rate.price(claim)
    for window, tokens in taken.items():
        yield window * length, rate.burst - tokens
