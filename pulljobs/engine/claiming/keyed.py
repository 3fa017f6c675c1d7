"""Claims of consumers with exclusive keys, and freeing of keys: see `storage.keys`."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any, Final, NamedTuple

from pulljobs.engine.claiming.rows import Claimed, Refusal, Taken, Terms, held_jobs
from pulljobs.engine.encodings import array
from pulljobs.engine.low_water_marks import Entry, Position, Snapshot
from pulljobs.engine.sql import Row, Session

LEAST_SEEN: Final = 500
"""Jobs that a claim reads, even if it wants fewer, to make those behind busy keys blocked."""
MOST_SEEN: Final = 1_500
"""Jobs that a claim reads if other transactions have the first ones locked.

A publish that drops older jobs locks them.
"""
CONTENDED: Final = timedelta(milliseconds=20)
"""Time until the next claim, if another claim has keys locked."""
Key = tuple[int, str]
"""A consumer's id and a key."""


class _Seen(NamedTuple):
    id: int
    key: str | None
    priority: int
    available_at: datetime

    @property
    def position(self) -> Position:
        return Position(self.available_at, self.id)


class _Walk(NamedTuple):
    """First jobs of the claim index, which a claim reads in order before it locks their keys."""

    started_at: datetime
    snapshot: Snapshot
    seen: list[_Seen]
    walked: list[int]
    """Priorities of the index that were read."""
    next_due: timedelta | None
    """Time until a further job is due, or None if there is none or more jobs are due now."""


class _Repeated(Exception):
    """Signal to roll a claim back, because a lease with its request id exists already."""


def claim(session: Session, consumer_id: int, wanted: int, terms: Terms, entry: Entry) -> Claimed:
    """Claim up to `wanted` jobs, at most one of each key, under one new lease."""
    params = {"consumer_id": consumer_id, "wanted": wanted, **terms._asdict()}
    claimed, is_contended = _try(session, params, entry, max(wanted, LEAST_SEEN), wanted)
    if is_contended and wanted:
        most = max(wanted, MOST_SEEN)
        claimed, _is_contended = _try(session, params, entry, most, most)
    return claimed


def _try(
    session: Session, params: dict[str, Any], entry: Entry, most: int, most_keys: int
) -> tuple[Claimed, bool]:
    """Claim from the first `most` jobs and `most_keys` keys of the claim index.

    Return the claim, and True if it got nothing because other transactions have these jobs locked,
    so that a try with higher numbers may get some.
    """
    walk = _find(session, params["consumer_id"], most, entry)
    is_full = len(walk.seen) >= most
    if params["before_id"] is not None:
        walk = walk._replace(seen=[job for job in walk.seen if job.id < params["before_id"]])
    row, locked = _lock_and_claim(session, params, walk.seen, most_keys)
    claimed = _claimed(walk, row, full=is_full)
    got_none = claimed.passed and claimed.taken is None and not claimed.more
    has_tried_all = not is_full and len(locked) < most_keys
    return claimed, bool(row.is_open and got_none and row.refusal is None and not has_tried_all)


def _lock_and_claim(
    session: Session, params: dict[str, Any], seen: Sequence[_Seen], most_keys: int
) -> tuple[Row, list[str]]:
    """Lock up to `most_keys` free keys of these jobs. Claim a job of each, and jobs without key.

    Lock busy keys as well, and block the jobs behind them. All is in one transaction. Return the
    row of the claim, and the keys that were locked.
    """
    params = {
        **params,
        "job_ids": array(job.id for job in seen),
        "job_keys": array(job.key for job in seen),
    }
    keys = list(dict.fromkeys(job.key for job in seen if job.key is not None))
    with suppress(_Repeated), session.atomic():
        if keys:
            asked = {**params, "keys": array(keys), "wanted": most_keys}
            keys = [row.key for row in session.run("lock_keys_to_claim", asked)]
        [claim] = session.run("claim_keyed", {**params, "keys": array(keys)})
        if claim.refusal == Refusal.REPEATED:
            raise _Repeated
    return claim, keys


def _find(session: Session, consumer_id: int, wanted: int, entry: Entry) -> _Walk:
    params = {"consumer_id": consumer_id, "wanted": wanted, **entry._asdict()}
    [row] = session.run("find_keyed", params)
    return _Walk(
        row.started_at,
        Snapshot.parse(row.snapshot),
        list(map(_Seen, row.job_ids, row.keys, row.job_priorities, row.available_ats)),
        row.walked,
        None if row.next_due_seconds is None else timedelta(seconds=row.next_due_seconds),
    )


def _claimed(walk: _Walk, row: Row, *, full: bool) -> Claimed:
    took = held_jobs(row, row.job_priorities) if row.lease_token else []
    blocked = row.blocked_ids if row.refusal != Refusal.REPEATED else ()
    gone = {job.id for job in took} | set(blocked)
    is_left = any(job.id not in gone for job in walk.seen)
    pause = row.pause_seconds
    next_due = walk.next_due if pause is None else timedelta(seconds=pause)
    if is_left and row.is_open and row.refusal is None:
        next_due = min(next_due or CONTENDED, CONTENDED)
    return Claimed(
        walk.started_at,
        walk.snapshot,
        row.xid,
        Taken(row.lease_token, row.leased_until) if row.lease_token else None,
        took,
        {priority: _reached(walk.seen, priority, gone) for priority in walk.walked},
        is_left,
        next_due,
        None if row.refusal is None else Refusal(row.refusal),
        more=full and bool(gone),
    )


def _reached(seen: Sequence[_Seen], priority: int, gone: Collection[int]) -> Position | None:
    """Return the position up to which a claim took or blocked all jobs that it saw of a priority.

    `gone` has the ids of taken and blocked jobs. Return None if the first job is not among them.
    """
    jobs = (job for job in seen if job.priority == priority)
    passed = list(takewhile(lambda job: job.id in gone, jobs))
    return passed[-1].position if passed else None


def lock_keys(session: Session, keys: Collection[Key]) -> list[Key]:
    """Lock the rows of these keys, waiting for claims that have them locked.

    Return the keys that exist.
    """
    rows = session.run("lock_keys", key_columns(keys))
    return [(row.consumer_id, row.key) for row in rows]


def free_keys(session: Session, locked: Collection[Key], let_go: Collection[int]) -> bool:
    """Make the next job of each locked key claimable, if no job occupies the key any more.

    `let_go` has the ids of live jobs that occupied their keys until now, for example before a
    retry. Return True if a job became claimable, or if the row of a key without jobs was deleted.
    """
    if not locked:
        return False
    [row] = session.run("free_keys", {**key_columns(locked), "job_ids": array(let_go)})
    return bool(row.changed)


def key_columns(keys: Collection[Key]) -> dict[str, str]:
    """Return keys as two parameters of a statement: arrays of consumer ids and of keys."""
    return {
        "consumer_ids": array(consumer_id for consumer_id, _key in keys),
        "keys": array(key for _consumer_id, key in keys),
    }
