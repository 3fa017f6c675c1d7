"""Claims of consumers without exclusive keys: one statement."""

from datetime import timedelta
from typing import Final

from pulljobs.engine.claiming.rows import Claimed, HeldJob, Refusal, Taken, Terms, held_jobs
from pulljobs.engine.claiming.session import Row, Session
from pulljobs.engine.low_water_marks import Entry, Position, Snapshot
from pulljobs.ids import first_of

AROUND: Final = timedelta(hours=1)
"""The floor: what is claimed next was published then, mostly."""
FRESH: Final = 0, 1, False
"""Retry count, deliveries and whether it is a suspect, of a job that nobody claimed before."""


def claim(session: Session, consumer_id: int, wanted: int, terms: Terms, entry: Entry) -> Claimed:
    """Put up to `wanted` jobs under one new lease."""
    if entry.is_level and terms.request_id is None:
        claimed = _claim_level(session, consumer_id, wanted, terms, entry)
        if claimed is not None:
            return claimed
    return _claim(session, consumer_id, wanted, terms, entry)


def _claim_level(
    session: Session, consumer_id: int, wanted: int, terms: Terms, entry: Entry
) -> Claimed | None:
    """Where all that wait have the one priority of the entry; None: they may have others."""
    [priority], [mark_at], [mark_id] = entry.priorities, entry.mark_ats, entry.mark_ids
    params = {
        "consumer_id": consumer_id,
        "wanted": wanted,
        **terms._asdict(),
        "priority": priority,
        "mark_at": mark_at,
        "mark_id": mark_id,
        "lowest": first_of(mark_at - AROUND) if terms.few else None,
        "highest": first_of(mark_at + AROUND) if terms.few else None,
    }
    rows = session.run("claim_level", params)
    return _level(rows[0], priority) if rows else None


def _level(row: Row, priority: int) -> Claimed:
    begun, jobs, (at, id, sure, next_due), told = row[:5], row[5:10], row[10:14], row[14:]
    ids, message_ids, *history = jobs
    if ids is None:
        return _claimed(begun, [], {priority: None}, False, next_due)
    if history[0] is None:
        history = [[value] * len(ids) for value in FRESH]
    taken = held_jobs([ids, message_ids, [priority] * len(ids), *history])
    claimed = _claimed(begun, taken, {priority: Position(at, id)}, False, next_due)
    messages = [] if told[0] is None else list(zip(*told, strict=True))
    return claimed._replace(sure=sure, messages=messages)


def _claim(session: Session, consumer_id: int, wanted: int, terms: Terms, entry: Entry) -> Claimed:
    params = {
        "consumer_id": consumer_id,
        "wanted": wanted,
        **terms._asdict(),
        **entry._asdict(),
    }
    [row] = session.run("claim", params)
    started_at, snapshot, xid, token, leased_until, *arrays, passed, next_due, refusal = row
    *jobs, walked, ats, ids = arrays
    reached = {
        priority: Position(at, id) if at else None
        for priority, at, id in zip(walked, ats, ids, strict=True)
    }
    claimed = _claimed(
        (started_at, snapshot, xid, token, leased_until),
        held_jobs(jobs),
        reached,
        passed,
        next_due,
        None if refusal is None else Refusal(refusal),
    )
    return claimed.without_jobs(Refusal.REPEATED) if refusal == Refusal.REPEATED else claimed


def _claimed(
    begun: Row,
    jobs: list[HeldJob],
    reached: dict[int, Position | None],
    passed: bool,
    next_due: float | None,
    refusal: Refusal | None = None,
) -> Claimed:
    started_at, snapshot, xid, token, leased_until = begun
    return Claimed(
        started_at,
        Snapshot.parse(snapshot),
        xid,
        Taken(token, leased_until) if token else None,
        jobs,
        reached,
        passed,
        None if next_due is None else timedelta(seconds=next_due),
        refusal,
    )
