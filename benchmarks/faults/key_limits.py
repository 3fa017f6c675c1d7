"""Limits of the keys of a run, and how keys shared the claims."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, combinations
from typing import Final, NamedTuple

from benchmarks.faults.claim_rates import TimedClaim

MOST_LAG: Final = 3
"""Turns by which the shares of two keys may differ, which is one for each process at its claim."""
LEAST_SHARED: Final = 3.0
"""Seconds in which jobs of two keys have to wait before their shares are judged."""

Span = tuple[float, float]


class KeyLimits(NamedTuple):
    """Limits of the keys of a run."""

    is_exclusive: bool = True
    """True if jobs of a key run one at a time."""
    slots: int = 0
    """Bound on the jobs of a key in flight, or 0 for none."""
    is_fair: bool = False
    """True if keys take turns."""


def most_held(holdings: Iterable[Span]) -> int:
    """Return the highest number of these times that overlap at an instant."""
    changes: list[tuple[float, int]] = []
    for since, until in holdings:
        if since < until:
            changes += [(since, 1), (until, -1)]
    return max(accumulate(change for _at, change in sorted(changes)), default=0)


def unequal_shares(claims: Sequence[TimedClaim], turn: int) -> Iterator[str]:
    """Yield a sentence for each two keys of a consumer of which one got far more claims.

    Of two keys it judges the longest time in which jobs of both waited at every instant. `turn` is
    the highest number of jobs of a turn.
    """
    by_key: dict[tuple[int, str], list[TimedClaim]] = defaultdict(list)
    for claim in claims:
        by_key[claim.consumer, claim.key or ""].append(claim)
    queues = {key: list(_queues(own)) for key, own in by_key.items()}
    for first, second in combinations(sorted(by_key), 2):
        if first[0] != second[0]:
            continue
        since, until = _longest_overlap(queues[first], queues[second])
        if until - since < LEAST_SHARED:
            continue
        counts = [
            sum(since <= claim.claimed_at < until for claim in by_key[key])
            for key in (first, second)
        ]
        if abs(counts[0] - counts[1]) > MOST_LAG * turn:
            keys = f"{first[1]} and {second[1]} of consumer {first[0]}"
            yield f"{keys} had {counts[0]} and {counts[1]} claims while jobs of both waited"


def _queues(claims: Sequence[TimedClaim]) -> Iterator[Span]:
    """Yield the times in which a job waited for its first claim at every instant."""
    begin, end = 0.0, float("-inf")
    waits = sorted((each.created_at, each.claimed_at) for each in claims if each.created_at)
    for since, until in waits:
        if since > end and end > begin:
            yield begin, end
        begin, end = (since, until) if since > end else (begin, max(end, until))
    if end > begin:
        yield begin, end


def _longest_overlap(first: Sequence[Span], second: Sequence[Span]) -> Span:
    overlaps = [
        (max(since, other_since), min(until, other_until))
        for since, until in first
        for other_since, other_until in second
    ]
    return max(overlaps, key=lambda span: span[1] - span[0], default=(0.0, 0.0))
