"""Check of rate limits: replay of each token bucket with the times of claims in the tables."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from benchmarks.faults.spans import Span, invert, merge, overlap
from pulljobs.rates import parse_rate, window_seconds

ROUNDING: Final = 1e-5
"""Seconds by which a time in the tables may be off."""
LEAST: Final = 0.01
"""Tokens that rounding may hide."""
USED_SHARE: Final = 0.95
"""Share of the allowance that claims take at least, while work waits and nothing disturbs them."""
LEAST_BUSY: Final = 3.0
"""Seconds for which work has to wait before the share is judged."""


class LimitChange(NamedTuple):
    """Change of limits at run time, committed between `since` and `at` of the database's clock."""

    since: float
    at: float
    per_second: float
    burst: float
    slots: int
    """Bound on the jobs of a key in flight."""


Phase = tuple[Span, LimitChange]


def find_phases(first: LimitChange, changes: Sequence[LimitChange]) -> list[Phase]:
    """Return each change with the span of time in which it may have been in force, in order."""
    every = [first, *changes]
    ends = [*(change.at for change in changes), float("inf")]
    return [(Span(change.since, end), change) for change, end in zip(every, ends, strict=True)]


class ClaimRate(NamedTuple):
    """Rate limit of each consumer of a run, or of all of them together."""

    per_second: float
    burst: float
    window: float | None = None
    """Length of the fixed window in seconds. None: a token bucket."""
    is_shared: bool = False
    """True if the consumers share a bucket."""
    is_by_key: bool = False
    """True if each key of a consumer has a bucket."""
    costs: Mapping[int, int] = {}
    """Costs by job id. A job that is missing costs one token."""

    changes: Sequence[LimitChange] = ()
    """Later rates with their bursts, in order."""

    def price(self, claim: "TimedClaim") -> float:
        """Return the least number of tokens that a claim takes: its cost, at most a full bucket."""
        least = min([self.burst, *(change.burst for change in self.changes)])
        return min(float(self.costs.get(claim.job, 1)), least)

    def find_highest(self, since: float, until: float) -> LimitChange:
        """Return the highest rate and burst that may have been in force between two times."""
        first = LimitChange(float("-inf"), float("-inf"), self.per_second, self.burst, 0)
        if not self.changes:
            return first
        phases = find_phases(first, self.changes)
        known = [change for span, change in phases if span.since <= until and since <= span.until]
        return first._replace(
            per_second=max(change.per_second for change in known),
            burst=max(change.burst for change in known),
        )


class TimedClaim(NamedTuple):
    """Claim of one job, with times of the database's clock in seconds."""

    consumer: int
    claimed_at: float
    released_at: float | None = None
    """Time of a release that gives the tokens back."""
    job: int = 0
    created_at: float | None = None
    """Time of the publish, or None for a job that was not due at once or was claimed before."""
    key: str | None = None


def make_rate(text: str, *, window: bool = False, shared: bool = False) -> ClaimRate | None:
    """Return the rate of a text such as 100/s with its default burst, or None for no rate."""
    per_second = parse_rate(text)
    if per_second is None:
        return None
    if window:
        length = window_seconds(text)
        return ClaimRate(per_second, round(per_second * length), length, shared)
    return ClaimRate(per_second, max(per_second, 1.0), None, shared)


def find_overdrafts(claims: Sequence[TimedClaim], rate: ClaimRate) -> Iterator[str]:
    """Yield a sentence for each token bucket from which claims took more than it had."""
    replay = _replay if rate.window is None else _replay_windows
    for consumer, own in _by_bucket(claims, rate).items():
        at, level = min(replay(own, rate), key=lambda moment: moment[1])
        if level < -(LEAST + ROUNDING * rate.per_second):
            yield f"{consumer} had {-level:.2f} tokens above its rate at {at:.3f}"


def used_share(
    claims: Sequence[TimedClaim], rate: ClaimRate, disturbed: Iterable[Span] = ()
) -> float | None:
    """Return the share of the allowed tokens that claims took while jobs waited.

    It is the least share of all buckets. Of each bucket it judges the longest time in which a job
    waited at every instant and nothing disturbed the claims, up to the last claim in it. Return
    None if no job waited for long enough.
    """
    shares, calm = [], invert(disturbed)
    for own in _by_bucket(claims, rate).values():
        queues = list(overlap(find_waits(own), calm))
        longest = max(queues, key=lambda span: span.seconds, default=Span(0.0, 0.0))
        taken = [claim for claim in own if longest.since <= claim.claimed_at <= longest.until]
        until = max((claim.claimed_at for claim in taken), default=longest.since)
        if until - longest.since >= LEAST_BUSY:
            tokens = sum(rate.price(claim) for claim in taken if claim.released_at is None)
            allowed = rate.find_highest(longest.since, until).per_second
            shares.append(tokens / (allowed * (until - longest.since)))
    return min(shares, default=None)


def find_waits(claims: Iterable[TimedClaim]) -> Iterator[Span]:
    """Yield the spans throughout which some job waited for its first claim, in order."""
    return merge(
        Span(claim.created_at, claim.claimed_at)
        for claim in claims
        if claim.created_at is not None and claim.created_at < claim.claimed_at
    )


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


def _replay(claims: Sequence[TimedClaim], rate: ClaimRate) -> Iterator[tuple[float, float]]:
    """Yield the time of each claim and release, and the tokens that are left after it, in order.

    Fewer than 0 tokens mean that claims exceeded the rate: at each claim, the computed bucket has
    at least the tokens of that in the database. A claim takes its tokens from the latter a bit
    later, and a full bucket loses the tokens that it gains in between.
    """
    changes = [(claim.claimed_at, -rate.price(claim)) for claim in claims]
    changes += [
        (claim.released_at, rate.price(claim)) for claim in claims if claim.released_at is not None
    ]
    # Of changes at one time a release comes first: no order of the events is then impossible.
    changes.sort(key=lambda change: (change[0], -change[1]))
    level, last = rate.burst, changes[0][0]
    for at, change in changes:
        # A claim fills the bucket by the rate of its time, also for the time before a change.
        limits = rate.find_highest(last, at)
        filled = min(limits.burst, level + limits.per_second * (at - last))
        level, last = min(limits.burst, filled + change), at
        yield at, level


def _replay_windows(claims: Sequence[TimedClaim], rate: ClaimRate) -> Iterator[tuple[float, float]]:
    """Yield the start of each fixed window, and the tokens that are left at its end.

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
