"""Claims that mind what a consumer asks for: exclusive keys, a bound on its jobs in flight.

Claims of a consumer that bounds its jobs in flight take turns: each locks the consumer's row before
it counts, so the bound is exact. Consumers without a bound never come here.
"""

from typing import NamedTuple

from pulljobs.engine.claiming import keyed, plain
from pulljobs.engine.claiming.rows import Claimed, Refusal, Terms
from pulljobs.engine.claiming.session import Session
from pulljobs.engine.low_water_marks import Entry


class Guards(NamedTuple):
    """What claims of a consumer must mind; read without a lock, for each claim looks again."""

    exclusive: bool = False
    """Its keys."""
    bounded: bool = False
    """How many of its jobs are in flight."""


def guards(session: Session, consumer_id: int) -> Guards:
    rows = session.run("guards", {"consumer_id": consumer_id})
    return Guards(*rows[0]) if rows else Guards()


def claim(
    session: Session, consumer_id: int, wanted: int, terms: Terms, entry: Entry, guards: Guards
) -> Claimed | None:
    """Under these guards; None: the consumer asks for others."""
    way = keyed.claim if guards.exclusive else plain.claim
    if not guards.bounded:
        claimed = way(session, consumer_id, wanted, terms, entry)
        return None if claimed.refusal is Refusal.UNGUARDED else claimed
    with session.atomic():
        left = room(session, consumer_id)
        if left is None:
            return None
        seen_to = terms._replace(guarded=True)
        claimed = way(session, consumer_id, min(left, wanted), seen_to, entry)
    if claimed.refusal is Refusal.UNGUARDED:
        return None
    if left < wanted and claimed.refusal is None and len(claimed.jobs) == left:
        # Whoever makes room wakes those who wait: there is nothing to come back for before.
        return claimed._replace(refusal=Refusal.MAX_IN_FLIGHT, more=False, next_due=None)
    return claimed


def room(session: Session, consumer_id: int) -> int | None:
    """How many more may be claimed until the transaction ends; None: any number."""
    session.run("lock_consumer", {"consumer_id": consumer_id})
    rows = session.run("room", {"consumer_id": consumer_id})
    return None if not rows else rows[0][0]
