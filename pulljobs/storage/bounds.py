"""Publishing to consumers that bound how many jobs of a key there may be.

Publishers of one key take turns at a row of their own until their transactions end, so the bound is
exact. Claims, finishes and kills never look at that row.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from django.db import transaction

from pulljobs.states import Reason, State
from pulljobs.storage import keys
from pulljobs.storage.arrays import array
from pulljobs.storage.rows import FullKey, Published
from pulljobs.storage.statements import column, run

REPLACE: Final = "replace"
DROP_OLDEST: Final = "drop_oldest"
DROPPED: Final = "A newer message of its key was published, and there was no room for both."


class _Full(NamedTuple):
    """A consumer for which the key is full."""

    consumer_id: int
    name: str
    overflow: str
    surplus: int
    queued: list[int]
    last_message_id: int

    @property
    def giving_way(self) -> list[int]:
        """The queued jobs that make room; fewer than the surplus: there is none to be had."""
        if self.overflow == REPLACE:
            return self.queued[-1:]  # The last one, for nothing may overtake.
        return self.queued[: self.surplus] if self.overflow == DROP_OLDEST else []

    @property
    def takes_none(self) -> bool:
        return len(self.giving_way) < (1 if self.overflow == REPLACE else self.surplus)


def publish(using: str, message: Mapping[str, Any]) -> Published:
    """One message, by the parameters of publish_one.sql."""
    with transaction.atomic(using=using):
        full = _locked(using, message) if message["key"] is not None else []
        replacing = [one for one in full if one.overflow == REPLACE and not one.takes_none]
        params = {**message, "replacing": [one.consumer_id for one in replacing]}
        [row] = run(using, "publish_one", params)
        published = Published(*row[:3])
        refusing = next((one for one in full if one.takes_none), None)
        if published.message_id is None:
            return published
        if refusing is not None:
            transaction.set_rollback(True, using=using)
            return Published(None, [], [], (), FullKey(refusing.name, refusing.last_message_id))
        _drop(using, message["key"], [one for one in full if one.overflow == DROP_OLDEST])
        return _replaced(using, message, published, replacing)


def _locked(using: str, message: Mapping[str, Any]) -> list[_Full]:
    """Where the key is full, with what gives way locked; what a claim took first made room."""
    run(using, "lock_bounded_keys", message)
    while True:
        full = [_Full(*row) for row in run(using, "full_keys", message)]
        giving_way = [job_id for one in full for job_id in one.giving_way]
        if len(run(using, "lock_queued", {"job_ids": array(giving_way)})) == len(giving_way):
            return full


def _drop(using: str, key: str, full: Sequence[_Full]) -> None:
    """Their key is freed after the commit, for until then its row would be locked for claims."""
    if not full:
        return
    giving_way = [job_id for one in full for job_id in one.giving_way]
    params = {"job_ids": giving_way, "states": [State.QUEUED], "error": DROPPED}
    run(using, "kill", {**params, "reason": Reason.KEY_OVERFLOW})
    freed = {(one.consumer_id, key) for one in full}
    transaction.on_commit(partial(keys.free, using, freed), using=using, robust=True)


def _replaced(
    using: str, message: Mapping[str, Any], published: Published, replacing: Sequence[_Full]
) -> Published:
    """The jobs that took the message count among those that were made."""
    if not replacing:
        return published
    giving_way = [job_id for one in replacing for job_id in one.giving_way]
    params = {**message, "message_id": published.message_id, "job_ids": array(giving_way)}
    rows = run(using, "replace", params)
    made = dict(zip(published.consumer_ids, published.job_ids, strict=True))
    every = dict(sorted((made | {consumer_id: job_id for job_id, consumer_id in rows}).items()))
    return Published(published.message_id, [*every.values()], [*every], tuple(column(rows)))
