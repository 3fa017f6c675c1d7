"""Exclusive keys: of each key of a consumer one job is in flight at most, the first one first.

Every change to what runs of a key is made under the lock of the key's row, and decided by a later
statement, whose snapshot has all that was committed before the lock. Claims skip keys that somebody
has locked; who frees a key waits for it. A claim takes the jobs that wait behind a busy key out of
its index (parks them), so that nobody meets them again until the key is free.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from django.db import DatabaseError, connections, transaction

from pulljobs.floors import Entry, Position, Snapshot
from pulljobs.storage import listen
from pulljobs.storage.arrays import array
from pulljobs.storage.rows import Claimed, HeldJob, Refusal, Taken
from pulljobs.storage.statements import Row, column, retrying, run

logger = logging.getLogger("pulljobs.storage")

LEAST_SEEN: Final = 500
"""A claim looks at so many jobs, however few it wants: what waits behind busy keys is parked."""
CONTENDED: Final = timedelta(milliseconds=20)
"""When to come back for keys that another claim has locked."""
SWEPT: Final = 1_000

Key = tuple[int, str]
"""A consumer and a key."""
Took = TypeVar("Took")


class _Seen(NamedTuple):
    id: int
    key: str | None
    priority: int
    available_at: datetime

    @property
    def position(self) -> Position:
        return Position(self.available_at, self.id)


class _Found(NamedTuple):
    """What a claim may begin with, in its order."""

    started_at: datetime
    snapshot: Snapshot
    seen: list[_Seen]
    walked: list[int]
    next_due: timedelta | None


def claim(
    using: str,
    consumer_id: int,
    wanted: int,
    *,
    entry: Entry,
    node_id: UUID | None,
    door: str,
    lease: timedelta | None,
    max_lease: timedelta,
    request_id: str | None = None,
    guarded: bool = False,
) -> Claimed:
    """Put up to `wanted` jobs, one a key, under one new lease."""
    found = _find(using, consumer_id, max(wanted, LEAST_SEEN), entry)
    keys = list(dict.fromkeys(one.key for one in found.seen if one.key is not None))
    params = {
        "consumer_id": consumer_id,
        "wanted": wanted,
        "job_ids": array(one.id for one in found.seen),
        "job_keys": array(one.key for one in found.seen),
        "keys": array(keys),
        "node_id": node_id,
        "door": door,
        "lease": lease,
        "max_lease": max_lease,
        "request_id": request_id,
        "guarded": guarded,
    }
    with transaction.atomic(using=using):
        if keys:
            params["keys"] = array(column(run(using, "lock_keys_to_claim", params)))
        [row] = run(using, "claim_keyed", params)
        if row[-1] == Refusal.REPEATED:
            transaction.set_rollback(True, using=using)
    return _claimed(found, row, full=len(found.seen) >= max(wanted, LEAST_SEEN))


def _find(using: str, consumer_id: int, wanted: int, entry: Entry) -> _Found:
    params = {"consumer_id": consumer_id, "wanted": wanted, **entry._asdict()}
    [(started_at, snapshot, ids, keys, priorities, ats, walked, next_due)] = run(
        using, "find_keyed", params
    )
    return _Found(
        started_at,
        Snapshot.parse(snapshot),
        list(map(_Seen, ids, keys, priorities, ats)),
        walked,
        None if next_due is None else timedelta(seconds=next_due),
    )


def _claimed(found: _Found, row: Row, *, full: bool) -> Claimed:
    xid, token, leased_until, *jobs, parked_ids, pause, refusal = row
    took = list(map(HeldJob, *jobs)) if token else []
    gone = {job.id for job in took} | set(parked_ids if refusal != Refusal.REPEATED else ())
    left = any(one.id not in gone for one in found.seen)
    next_due = found.next_due if pause is None else timedelta(seconds=pause)
    if left and refusal is None:
        next_due = min(next_due or CONTENDED, CONTENDED)
    return Claimed(
        found.started_at,
        found.snapshot,
        xid,
        Taken(token, leased_until) if token else None,
        took,
        {priority: _reached(found.seen, priority, gone) for priority in found.walked},
        left,
        next_due,
        None if refusal is None else Refusal(refusal),
        more=full and bool(gone),
    )


def _reached(seen: Sequence[_Seen], priority: int, gone: Collection[int]) -> Position | None:
    """How far nothing is left of a priority."""
    ours = (one for one in seen if one.priority == priority)
    disposed = list(takewhile(lambda one: one.id in gone, ours))
    return disposed[-1].position if disposed else None


def free(using: str, keys: Collection[Key], let_go: Collection[int] = ()) -> None:
    """Let the next job of each key be claimed, if its job is settled or has `let_go` of it."""
    if not keys:
        return

    def work() -> None:
        with transaction.atomic(using=using):
            _free(using, run(using, "lock_keys", _columns(keys)), let_go)

    if connections[using].in_atomic_block:
        work()
        return
    try:
        retrying(using, work)
    except DatabaseError as error:
        # What freed them is committed. The sweep sees to the keys.
        logger.warning("%d keys could not be freed: %s", len(keys), error)


def sweep(using: str) -> bool:
    """Free what those left behind who died at it, and forget idle keys; whether there is more."""
    forgotten = run(using, "idle_bounded_keys", {"wanted": SWEPT})

    def work() -> list[Row]:
        with transaction.atomic(using=using):
            rows = run(using, "stuck_keys", {"wanted": SWEPT})
            _free(using, rows, ())
            return rows

    swept = retrying(using, work)
    listen.wake_on_commit(using, column(swept))
    return SWEPT in (len(swept), len(forgotten))


def take(using: str, consumer_id: int, job_id: int, work: Callable[[], Took]) -> Took:
    """What `work` takes while the key of that job is locked."""
    with transaction.atomic(using=using):
        run(using, "lock_key_of_job", {"consumer_id": consumer_id, "job_id": job_id})
        return work()


def _free(using: str, keys: Collection[Row], let_go: Collection[int]) -> None:
    if keys:
        run(using, "free_keys", {**_columns(keys), "job_ids": array(let_go)})


def _columns(keys: Collection[Row]) -> dict[str, str]:
    return {
        "consumer_ids": array(consumer_id for consumer_id, _key in keys),
        "keys": array(key for _consumer_id, key in keys),
    }
