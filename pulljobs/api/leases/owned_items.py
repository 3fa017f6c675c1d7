"""Check that the jobs which an ack names belong to the caller, and the items that pass it."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from pulljobs.conf import settings
from pulljobs.engine.claiming.guarded import Guards
from pulljobs.engine.outcomes import Settlement
from pulljobs.models import Consumer
from pulljobs.pulling import Claim
from pulljobs.states import Event
from pulljobs.storage import protocol, transactions
from pulljobs.storage.protocol import JobOwner

MOST_CLAIMS: Final = 10_000
"""Largest number of claims whose consumers a process remembers."""


class AckItem(NamedTuple):
    """Outcome of one job in an ack, with the id as the caller wrote it."""

    id: str
    settlement: Settlement | None
    """Outcome with the lease token, or None if `id` is no id of a job."""
    throttle: float = 0.0
    """Seconds for which no job of the consumer, or of the job's key, is claimed."""
    is_of_key: bool = False
    """True if `throttle` is for the job's key only."""


class OwnedItem(NamedTuple):
    """Item of an ack whose job belongs to the consumer that sent the ack."""

    job_id: int
    consumer: Consumer
    settlement: Settlement
    throttle: float
    is_of_key: bool
    has_key: bool
    """True if the end of the job may free a key."""

    @property
    def waits(self) -> bool:
        """True if the write may have to wait for the lock of a key, a limit or a throttle."""
        gives_back = self.settlement.event is Event.RELEASE
        return gives_back or self.has_key or self.throttle > 0


class RecentClaims:
    """Cache of the consumers of this process's newest claims, by lease token.

    A lease token is never reused, so an entry is never out of date. Most acks come to the process
    that answered the pull. It then has to read no owners of jobs.
    """

    def __init__(self) -> None:
        self._owners: OrderedDict[UUID, JobOwner] = OrderedDict()

    def note(self, consumer_id: int, claim: Claim, guards: Guards) -> None:
        """Store the consumer of a claim, with True if the end of one of its jobs may free a key.

        `guards` has the consumer's rules for keys. Where keys take turns, jobs without a key count
        as jobs of one key. A repeated claim is not stored: it is known already, or another process
        made it, whose guards are not known here.
        """
        if claim.taken is None or claim.repeated:
            return
        holds_key = guards.exclusive and any(message.key is not None for _, message in claim.jobs)
        owner = JobOwner(consumer_id, has_key=guards.by_turn or holds_key)
        self._owners[claim.taken.lease_token] = owner
        while len(self._owners) > MOST_CLAIMS:
            self._owners.popitem(last=False)

    def find(self, consumer_id: int, lease_token: UUID) -> JobOwner | None:
        """Return the entry of a claim, or None if it is not cached or of another consumer."""
        owner = self._owners.get(lease_token)
        return owner if owner is not None and owner.consumer_id == consumer_id else None


recent_claims: Final = RecentClaims()


def find_owned(
    asked: Sequence[tuple[Consumer, Sequence[AckItem]]],
) -> list[dict[int, OwnedItem]]:
    """Return, for each request, the items whose jobs belong to its consumer, by index in the ack.

    An item without a throttle is trusted without a query if it has the lease token of a cached
    claim of the consumer. If the write then finds no such job under the token, `not_owned` checks
    whose it is.
    """
    known = [_find_claims(consumer, items) for consumer, items in asked]
    unknown = {
        item.settlement.held.job_id
        for (_consumer, items), claims in zip(asked, known, strict=True)
        for item in items
        if item.settlement and (item.throttle or item.settlement.held.lease_token not in claims)
    }
    owners = protocol.owners_of(settings().DATABASE, unknown)
    return [
        dict(_own(consumer, items, claims, owners))
        for (consumer, items), claims in zip(asked, known, strict=True)
    ]


def not_owned(items: Iterable[OwnedItem]) -> set[int]:
    """Return the ids of jobs that do not belong to the consumers of these items, by a query.

    If the query fails after a commit, the result is empty.
    """
    using, consumers = settings().DATABASE, {item.job_id: item.consumer.pk for item in items}
    strange: set[int] = set()
    with transactions.after_commit(using, "the search for the owners of lost jobs"):
        owners = protocol.owners_of(using, consumers)
        own = {id for id, owner in owners.items() if owner.consumer_id == consumers[id]}
        strange |= consumers.keys() - own
    return strange


def _find_claims(consumer: Consumer, items: Sequence[AckItem]) -> dict[UUID, JobOwner]:
    """Return the cached claims of the consumer whose lease tokens are in the items, by token."""
    tokens = {item.settlement.held.lease_token for item in items if item.settlement}
    claims = {token: recent_claims.find(consumer.pk, token) for token in tokens}
    return {token: owner for token, owner in claims.items() if owner is not None}


def _own(
    consumer: Consumer,
    items: Sequence[AckItem],
    claims: Mapping[UUID, JobOwner],
    owners: Mapping[int, JobOwner],
) -> Iterator[tuple[int, OwnedItem]]:
    consumer_id = consumer.pk
    for index, (_id, settlement, throttle, is_of_key) in enumerate(items):
        if settlement is not None:
            job_id, token = settlement.held
            # A throttle comes before the settlement, which would show that the job is another's.
            owner = owners.get(job_id) or (None if throttle else claims.get(token))
            if owner and owner.consumer_id == consumer_id:
                has_key = owner.has_key
                owned = OwnedItem(job_id, consumer, settlement, throttle, is_of_key, has_key)
                yield index, owned
