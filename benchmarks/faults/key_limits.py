"""Limits of the keys of a run, and how keys shared the claims."""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, combinations
from typing import NamedTuple, TypeVar

from benchmarks.faults.claim_rates import TimedClaim, find_waits
from benchmarks.faults.spans import Span, invert, overlap


class KeyLimits(NamedTuple):
    """Limits that apply to each key of the consumers of a run."""

    is_exclusive: bool = True
    """True if jobs of a key run one at a time."""
    slots: int = 0
    """Bound on the jobs of a key in flight, or 0 for none."""
    is_fair: bool = False
    """True if keys take turns."""


class Holding(NamedTuple):
    """Time in which a process surely held a job of a key."""

    asked_at: float
    """Time at which the claim was sent. The bounds from then on may have held for it."""
    since: float
    until: float


def find_excess(
    holdings: Iterable[Holding], bound: Callable[[float, float], int]
) -> tuple[int, int] | None:
    """Return the number of jobs held at once and its bound when it was first exceeded, or None.

    `bound` returns the highest bound between two times. Jobs that were claimed under a higher
    bound may still be held.
    """
    changes: list[tuple[float, int, float]] = []
    for asked_at, since, until in holdings:
        if since < until:
            changes += [(since, 1, asked_at), (until, -1, 0.0)]
    held = 0
    for at, change, asked_at in sorted(changes):
        held += change
        if change > 0 and held > (allowed := bound(asked_at, at)):
            return held, allowed
    return None


def unequal_shares(
    claims: Iterable[TimedClaim], turns: int, disturbed: Iterable[Span] = ()
) -> Iterator[str]:
    """Yield a sentence for each two keys of a consumer of which one got far more claims.

    Two keys whose jobs wait take turns. So while both wait, one gets ahead of the other by at most
    `turns` turns. A turn has at most as many jobs as one claim took of a single key in that time.
    """
    for consumer, keys in _claims_by_key(claims).items():
        shares = _largest_shares(keys.values())
        calm = invert(disturbed)
        queues = {key: list(overlap(find_waits(own), calm)) for key, own in keys.items()}
        for pair in combinations(sorted(keys), 2):
            first, second = (keys[key] for key in pair)
            for span in overlap(*(queues[key] for key in pair)):
                lead = _find_lead(_within(first, span), _within(second, span))
                turn = max((share.jobs for share in _within(shares, span)), default=0)
                if lead > turns * turn:
                    names = f"{' and '.join(pair)} of consumer {consumer}"
                    yield f"of {names} one got ahead by {lead} jobs, with {turn} jobs in a turn"


class _Share(NamedTuple):
    """Number of jobs that a claim took of the key of which it took most."""

    claimed_at: float
    jobs: int


def _claims_by_key(claims: Iterable[TimedClaim]) -> dict[int, dict[str, list[TimedClaim]]]:
    """Return the claims of each consumer and key in order of time."""
    keys: dict[int, dict[str, list[TimedClaim]]] = defaultdict(lambda: defaultdict(list))
    for claim in sorted(claims, key=lambda claim: claim.claimed_at):
        keys[claim.consumer][claim.key or ""].append(claim)
    return keys


def _largest_shares(keys: Iterable[Iterable[TimedClaim]]) -> list[_Share]:
    largest: Counter[float] = Counter()
    for own in keys:
        largest |= Counter(claim.claimed_at for claim in own)
    return [_Share(at, jobs) for at, jobs in sorted(largest.items())]


def _find_lead(first: Iterable[TimedClaim], second: Iterable[TimedClaim]) -> int:
    """Return the largest lead in jobs that either key gained on the other between two times."""
    changes = Counter(claim.claimed_at for claim in first)
    changes.subtract(claim.claimed_at for claim in second)
    leads = [0, *accumulate(change for _at, change in sorted(changes.items()))]
    return max(leads) - min(leads)


Timed = TypeVar("Timed", TimedClaim, _Share)


def _within(claims: Sequence[Timed], span: Span) -> Sequence[Timed]:
    first = bisect_left(claims, span.since, key=lambda claim: claim.claimed_at)
    return claims[first : bisect_right(claims, span.until, key=lambda claim: claim.claimed_at)]
