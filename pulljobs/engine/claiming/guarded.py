"""Claims that respect the guards of a consumer: exclusive keys and limits."""

from typing import NamedTuple

from pulljobs.engine.claiming import keyed, limits, plain
from pulljobs.engine.claiming.rows import Claimed, Refusal, Terms
from pulljobs.engine.low_water_marks import Entry
from pulljobs.engine.sql import Session


class Guards(NamedTuple):
    """Guards of a consumer, read without a lock: each claim checks them again."""

    exclusive: bool = False
    """At most one job of a key is in flight."""
    limited: bool = False
    """The number of jobs in flight or the rate of claims is limited, so claims take turns."""


def read_guards(session: Session, consumer_id: int) -> Guards:
    """Return the guards of a consumer, or no guards if the consumer does not exist."""
    for row in session.run("guards", {"consumer_id": consumer_id}):
        return Guards(row.exclusive, row.limited)
    return Guards()


def claim(
    session: Session, consumer_id: int, wanted: int, terms: Terms, entry: Entry, guards: Guards
) -> Claimed | None:
    """Claim under these guards, or return None if the consumer has other guards."""
    claim_unlimited = keyed.claim if guards.exclusive else plain.claim
    if not guards.limited:
        claimed = claim_unlimited(session, consumer_id, wanted, terms, entry)
        return None if claimed.refusal is Refusal.UNGUARDED else claimed
    with session.atomic():
        allowance = limits.lock_allowance(session, consumer_id)
        if allowance is None:
            return None
        most, guarded = min(allowance.jobs, wanted), terms._replace(guarded=True)
        claimed = claim_unlimited(session, consumer_id, most, guarded, entry)
        allowance.spend(session, len(claimed.jobs))
    if claimed.refusal is Refusal.UNGUARDED:
        return None
    return allowance.name_limit(claimed, wanted)
