"""Claims of consumers with exclusive keys: `storage.keys` says how keys are kept."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any, Final, NamedTuple

from pulljobs.engine.claiming.rows import Claimed, Refusal, Taken, Terms, held_jobs
from pulljobs.engine.claiming.session import Row, Session
from pulljobs.engine.encodings import array
from pulljobs.engine.low_water_marks import Entry, Position, Snapshot

LEAST_SEEN: Final = 500
"""A claim looks at so many jobs, however few it wants: what waits behind busy keys is parked."""
MOST_SEEN: Final = 1_500
"""And at so many, if others have the first ones locked, as a publish does that drops older jobs."""
CONTENDED: Final = timedelta(milliseconds=20)
"""When to come back for keys that another claim has locked."""


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


class _Repeated(Exception):
    """Nothing is to be written: there is a lease under that request id."""


def claim(session: Session, consumer_id: int, wanted: int, terms: Terms, entry: Entry) -> Claimed:
    """Put up to `wanted` jobs, one a key, under one new lease."""
    params = {"consumer_id": consumer_id, "wanted": wanted, **terms._asdict()}
    claimed, is_stuck = _look(session, params, entry, max(wanted, LEAST_SEEN), wanted)
    if is_stuck and wanted:
        most = max(wanted, MOST_SEEN)
        claimed, _is_stuck = _look(session, params, entry, most, most)
    return claimed


def _look(
    session: Session, params: dict[str, Any], entry: Entry, most: int, most_keys: int
) -> tuple[Claimed, bool]:
    """What it gets of so many jobs and keys; and whether others have those, but maybe no more."""
    found = _find(session, params["consumer_id"], most, entry)
    is_full = len(found.seen) >= most
    if params["before_id"] is not None:
        found = found._replace(seen=[one for one in found.seen if one.id < params["before_id"]])
    params = {
        **params,
        "job_ids": array(one.id for one in found.seen),
        "job_keys": array(one.key for one in found.seen),
    }
    keys = list(dict.fromkeys(one.key for one in found.seen if one.key is not None))
    rows: list[Row] = []
    try:
        with session.atomic():
            if keys:
                locked = session.run(
                    "lock_keys_to_claim", {**params, "keys": array(keys), "wanted": most_keys}
                )
                keys = [key for (key,) in locked]
            rows = session.run("claim_keyed", {**params, "keys": array(keys)})
            if rows[0][-1] == Refusal.REPEATED:
                raise _Repeated
    except _Repeated:
        pass
    *_row, is_open, refusal = rows[0]
    claimed = _claimed(found, rows[0], full=is_full)
    got_none = claimed.passed and claimed.taken is None and not claimed.more
    has_tried_all = not is_full and len(keys) < most_keys
    return claimed, bool(is_open and got_none and refusal is None and not has_tried_all)


def _find(session: Session, consumer_id: int, wanted: int, entry: Entry) -> _Found:
    params = {"consumer_id": consumer_id, "wanted": wanted, **entry._asdict()}
    [(started_at, snapshot, ids, keys, priorities, ats, walked, next_due)] = session.run(
        "find_keyed", params
    )
    return _Found(
        started_at,
        Snapshot.parse(snapshot),
        list(map(_Seen, ids, keys, priorities, ats)),
        walked,
        None if next_due is None else timedelta(seconds=next_due),
    )


def _claimed(found: _Found, row: Row, *, full: bool) -> Claimed:
    xid, token, leased_until, *jobs, parked_ids, pause, is_open, refusal = row
    took = held_jobs(jobs) if token else []
    gone = {job.id for job in took} | set(parked_ids if refusal != Refusal.REPEATED else ())
    left = any(one.id not in gone for one in found.seen)
    next_due = found.next_due if pause is None else timedelta(seconds=pause)
    if left and is_open and refusal is None:
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
