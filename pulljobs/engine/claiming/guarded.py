"""Claims by the guards of a consumer: its rules on exclusive keys, limits and turns of keys."""

from collections.abc import Callable
from typing import NamedTuple

from pulljobs.engine.claiming import keyed, limits, plain, turns
from pulljobs.engine.claiming.limits import NotEnoughTokens
from pulljobs.engine.claiming.rows import Claimed, Refusal, Terms
from pulljobs.engine.low_water_marks import Entry
from pulljobs.engine.sql import Session

Work = Callable[[Session, int, int, Terms, Entry], Claimed]
"""Function that claims jobs of a consumer, as `plain.claim` does."""
Fit = Callable[[Callable[[int], Claimed | None]], Claimed | None]
"""Function that calls a claim of a number of jobs, and again of fewer jobs until they fit."""


class Guards(NamedTuple):
    """Rules of a consumer by which claims choose their statements, which check the rules again."""

    exclusive: bool = False
    """True if at most one job of a key may be in flight."""
    limited: bool = False
    """True if a concurrency or rate limit holds, for which claims lock the consumer's row."""
    group_id: int | None = None
    by_turn: bool = False
    """True if keys take turns, or have limits of their own."""


class Request(NamedTuple):
    """Arguments of a claim."""

    consumer_id: int
    wanted: int
    terms: Terms
    entry: Entry
    ring: Entry
    """Entry of a claim by turns into the ring, the index of the turns of keys."""
    job_cost: float = 1.0
    """Estimated cost of a job, from which follows how many jobs the tokens of a rate allow."""
    fit: Fit | None = None
    """Limit of the size of the jobs, in a transaction of its own, or None for any size."""


def read_guards(session: Session, consumer_id: int) -> Guards:
    """Return a consumer's rules for keys and limits (guards), or the defaults if it is unknown."""
    for row in session.run("guards", {"consumer_id": consumer_id}):
        return Guards(row.exclusive, row.limited, row.group_id, row.by_turn)
    return Guards()


def claim(session: Session, request: Request, guards: Guards) -> Claimed | None:
    """Claim jobs by these rules (guards), or return None if the consumer has other rules."""
    if not guards.by_turn:
        return _claim(session, request, guards, keyed.claim if guards.exclusive else plain.claim)
    by_turn = turns.begin(session, request.consumer_id, request.entry, request.ring)
    claimed = _claim(session, request, guards, by_turn.claim)
    if claimed is None:
        return None
    return by_turn.look_again(session, request.consumer_id, request.entry, claimed)


def _claim(session: Session, request: Request, guards: Guards, work: Work) -> Claimed | None:
    if request.fit is None:
        return _claim_any_size(session, request, guards, work)
    return request.fit(
        lambda wanted: _claim_any_size(session, request._replace(wanted=wanted), guards, work)
    )


def _claim_any_size(
    session: Session, request: Request, guards: Guards, work: Work
) -> Claimed | None:
    if not guards.limited:
        claimed = work(session, request.consumer_id, request.wanted, request.terms, request.entry)
        return None if claimed.refusal is Refusal.UNGUARDED else claimed
    most, next_cost = request.wanted, 1.0
    while True:
        try:
            return _claim_limited(session, request, guards, work, most, next_cost)
        except NotEnoughTokens as refused:
            most, next_cost = refused.fit, refused.next_cost


def _claim_limited(
    session: Session, request: Request, guards: Guards, work: Work, most: int, next_cost: float
) -> Claimed | None:
    """Claim at most `most` jobs while the limits are locked, or return None if the rules changed.

    `next_cost` is the cost of the job after them, or 1 if it is not known. Raise NotEnoughTokens
    if the jobs cost too much.
    """
    with session.atomic():
        allowance = limits.lock_allowance(session, request.consumer_id, guards.group_id)
        if allowance is None or (allowance.is_unlimited and guards.group_id is None):
            return None
        most = min(most, allowance.most(request.job_cost))
        terms = request.terms._replace(guarded=True)
        claimed = work(session, request.consumer_id, most, terms, request.entry)
        rest = allowance.spend(session, [job.id for job in claimed.jobs])
    if claimed.refusal is Refusal.UNGUARDED:
        return None
    taken = len(claimed.jobs)
    claimed = claimed._replace(job_cost=rest.spent / taken if taken else request.job_cost)
    if claimed.refusal is not None or taken == request.wanted or taken < most:
        return claimed
    return rest.name_limit(claimed, next_cost)
