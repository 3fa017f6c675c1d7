"""Writing of the outcomes in acks: of one request, or of several requests in one transaction."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import Final, NamedTuple

from pulljobs import pulling
from pulljobs.api.leases.bodies import ItemStatus
from pulljobs.api.leases.owned_items import AckItem, OwnedItem, find_owned, not_owned
from pulljobs.conf import settings
from pulljobs.emission import FindNames
from pulljobs.engine.outcomes import Settlement
from pulljobs.models import Consumer
from pulljobs.states import Event
from pulljobs.storage import listen, protocol, throttles
from pulljobs.storage.protocol import ConsumerNames
from pulljobs.storage.rows import Finished

FEW_ITEMS: Final = 10
"""Largest number of items of a request whose outcomes share a statement with those of others."""


class SettledItems(NamedTuple):
    """Result of writing the outcomes of a request."""

    statuses: list[ItemStatus]
    """Statuses of the items, in their order."""
    set_aside: dict[int, OwnedItem]
    """Items whose rows were locked, by their indexes, to be tried again later."""


def settle(consumer: Consumer, items: Sequence[AckItem]) -> SettledItems:
    """Write the outcomes of one request, and wait up to two seconds for locked rows.

    Of two items about the same job, the first is written before the second. If the row stays
    locked, both are LOCKED.
    """
    [open_items] = find_owned([(consumer, items)])
    _throttle(consumer, open_items.values())
    statuses = [ItemStatus.NOT_FOUND] * len(items)
    while open_items:
        first = {item.job_id: index for index, item in reversed(open_items.items())}
        batch = {index: open_items.pop(index) for index in first.values()}
        by_job = _finish(batch.values(), pulling.finish)
        for index, item in {**batch, **open_items}.items():
            status = by_job[item.job_id]
            if index in batch or status is ItemStatus.LOCKED:
                statuses[index] = status
                open_items.pop(index, None)
    return SettledItems(statuses, {})


def settle_together(
    asked: Sequence[tuple[Consumer, Sequence[AckItem]]],
) -> list[SettledItems | None]:
    """Write the outcomes of several requests in one transaction. After an error none is written.

    The result is None for a request that `settle` has to write alone: it may have to wait for a
    lock, has many items, or names a job twice, or a job that an earlier request names.
    """
    few = [(consumer, items) for consumer, items in asked if len(items) <= FEW_ITEMS]
    settled = _settle_few(few)
    return [next(settled) if len(items) <= FEW_ITEMS else None for _consumer, items in asked]


def _settle_few(
    asked: Sequence[tuple[Consumer, Sequence[AckItem]]],
) -> Iterator[SettledItems | None]:
    every = find_owned(asked)
    sharing = list(_choose_sharing(every))
    together = [item for owned in compress(every, sharing) for item in owned.values()]
    by_job = _finish(together, pulling.finish_together)
    for (_consumer, items), owned, shares in zip(asked, every, sharing, strict=True):
        yield _settled(len(items), owned, by_job) if shares else None


def settle_again(settled: SettledItems) -> SettledItems:
    """Try again to write those outcomes of a request whose rows were locked.

    Return the new statuses of all its items, and which rows are still locked.
    """
    statuses, left = list(settled.statuses), settled.set_aside
    by_job = _finish(left.values(), partial(pulling.finish, skip_locked=True))
    for index, item in left.items():
        statuses[index] = by_job[item.job_id]
    return _with_set_aside(statuses, left)


def _choose_sharing(every: Sequence[Mapping[int, OwnedItem]]) -> Iterator[bool]:
    """Yield True for each request whose items can share a statement with others, else False."""
    taken: set[int] = set()
    for owned in every:
        ids = {item.job_id for item in owned.values()}
        is_plain = len(ids) == len(owned) and ids.isdisjoint(taken)
        shares = is_plain and not any(item.waits for item in owned.values())
        if shares:
            taken |= ids
        yield shares


def _settled(
    items: int, owned: Mapping[int, OwnedItem], by_job: Mapping[int, ItemStatus]
) -> SettledItems:
    statuses = [ItemStatus.NOT_FOUND] * items
    for index, item in owned.items():
        statuses[index] = by_job[item.job_id]
    return _with_set_aside(statuses, owned)


def _with_set_aside(statuses: list[ItemStatus], owned: Mapping[int, OwnedItem]) -> SettledItems:
    locked = {i: item for i, item in owned.items() if statuses[i] is ItemStatus.LOCKED}
    return SettledItems(statuses, locked)


def _throttle(consumer: Consumer, items: Iterable[OwnedItem]) -> None:
    """Write the throttles that items ask for, of the consumer or of keys, before their outcomes.

    An item whose lease is lost throttles nothing, as it changes nothing else.
    """
    using, asked = settings().DATABASE, [item for item in items if item.throttle]
    held = protocol.select_held(using, [item.settlement.held for item in asked])
    throttled = [item for item in asked if item.settlement.held in held]
    if seconds := max((item.throttle for item in throttled if not item.is_of_key), default=0.0):
        throttles.throttle(using, {consumer.pk: seconds})
    of_keys = {item.job_id: item.throttle for item in throttled if item.is_of_key}
    if of_keys:
        throttles.throttle_keys_of_jobs(using, consumer.pk, of_keys)


def _finish(
    items: Collection[OwnedItem], write: Callable[[Sequence[Settlement], FindNames], Finished]
) -> dict[int, ItemStatus]:
    """Write the outcomes of different jobs by `write`, and return their statuses by job id.

    After the commit, processes that wait for retried jobs are notified.
    """
    finished = write([item.settlement for item in items], partial(_names_by_job, items))
    retried = {
        item.consumer.pk
        for item in items
        if item.settlement.event is Event.RETRY and item.job_id in finished.states
    }
    # Waiting pulls have to learn when the job becomes available.
    listen.wake_on_commit(settings().DATABASE, retried)
    if len(finished.states) == len(items):
        return dict.fromkeys(finished.states, ItemStatus.OK)
    statuses = {item.job_id: _status_of(item.job_id, finished) for item in items}
    lost = [item for item in items if statuses[item.job_id] is ItemStatus.LEASE_LOST]
    return statuses | dict.fromkeys(not_owned(lost), ItemStatus.NOT_FOUND)


def _names_by_job(items: Iterable[OwnedItem]) -> Mapping[int, ConsumerNames]:
    return {item.job_id: item.consumer.names for item in items}


def _status_of(job_id: int, finished: Finished) -> ItemStatus:
    if job_id in finished.states:
        return ItemStatus.OK
    if job_id in finished.locked:
        return ItemStatus.LOCKED
    return ItemStatus.REFUSED if job_id in finished.refused else ItemStatus.LEASE_LOST
