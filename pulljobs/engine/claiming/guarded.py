"""Claims that respect the guards of a consumer: exclusive keys and a bound on jobs in flight.

Claims of a consumer that bounds its jobs in flight take turns: each locks the consumer's row before
it counts, so the bound is exact. Claims of other consumers take no such lock.
"""

from typing import NamedTuple

from pulljobs.engine.claiming import keyed, plain
from pulljobs.engine.claiming.rows import Claimed, Refusal, Terms
from pulljobs.engine.low_water_marks import Entry
from pulljobs.engine.sql import Session


class Guards(NamedTuple):
    """Guards of a consumer, read without a lock: each claim checks them again."""

    exclusive: bool = False
    """At most one job of a key is in flight."""
    bounded: bool = False
    """The number of jobs in flight is bounded."""


def read_guards(session: Session, consumer_id: int) -> Guards:
    """Return the guards of a consumer, or no guards if the consumer does not exist."""
    for row in session.run("guards", {"consumer_id": consumer_id}):
        return Guards(row.exclusive, row.bounded)
    return Guards()


def claim(
    session: Session, consumer_id: int, wanted: int, terms: Terms, entry: Entry, guards: Guards
) -> Claimed | None:
    """Claim under these guards, or return None if the consumer has other guards."""
    claim_unbounded = keyed.claim if guards.exclusive else plain.claim
    if not guards.bounded:
        claimed = claim_unbounded(session, consumer_id, wanted, terms, entry)
        return None if claimed.refusal is Refusal.UNGUARDED else claimed
    with session.atomic():
        room = lock_room(session, consumer_id)
        if room is None:
            return None
        guarded = terms._replace(guarded=True)
        claimed = claim_unbounded(session, consumer_id, min(room, wanted), guarded, entry)
    if claimed.refusal is Refusal.UNGUARDED:
        return None
    if room < wanted and claimed.refusal is None and len(claimed.jobs) == room:
        # The transaction that makes room wakes the waiters: there is no reason to come back before.
        return claimed._replace(refusal=Refusal.MAX_IN_FLIGHT, more=False, next_due=None)
    return claimed


def lock_room(session: Session, consumer_id: int) -> int | None:
    """Lock the consumer until the transaction ends and return how many more jobs it may claim.

    None means any number, or that the consumer does not exist.
    """
    session.run("lock_consumer", {"consumer_id": consumer_id})
    for row in session.run("room", {"consumer_id": consumer_id}):
        return row.room  # type: ignore[no-any-return]  # rows are untyped
    return None
