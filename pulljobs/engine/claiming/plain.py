"""Claims of consumers whose keys neither exclude each other nor take turns."""

from datetime import UTC, datetime, timedelta
from typing import Final

from psycopg.types.numeric import Int8

from pulljobs.engine.claiming.rows import (
    Claimed,
    HeldJob,
    Refusal,
    StoredMessage,
    Taken,
    Terms,
    held_jobs,
)
from pulljobs.engine.low_water_marks import BEGINNING, Entry, LowWaterMarks, Position, Snapshot
from pulljobs.engine.sql import Row, Session
from pulljobs.ids import first_of

AROUND: Final = timedelta(hours=1)
"""Time around the low-water mark in which most of the messages of a claim were published."""
FRESH: Final = 0, 1, False
"""Values of `retry_count`, `deliveries` and `suspect` of a job after its first claim."""


def claim(session: Session, consumer_id: int, wanted: int, terms: Terms, entry: Entry) -> Claimed:
    """Claim up to `wanted` jobs under one new lease."""
    # Under the lock of a limited consumer claim_level.sql would claim nothing.
    if entry.is_level and terms.request_id is None and not terms.guarded:
        claimed = _claim_level(session, consumer_id, wanted, terms, entry)
        if claimed is not None:
            return claimed
    return _claim(session, consumer_id, wanted, terms, entry)


def prepare(session: Session, consumer_id: int, terms: Terms) -> None:
    """Run claim.sql and claim_level.sql for 0 jobs, so that the connection has plans for them.

    A plan is for parameters of certain types, so the parameters have the types of real claims.
    """
    now = datetime.now(UTC)
    unknown, begun = LowWaterMarks(), LowWaterMarks({0: Position(BEGINNING, 0)})
    for marks in (unknown, begun):
        _claim(session, consumer_id, 0, terms._replace(few=None), marks.entry_above())
    level = LowWaterMarks({0: Position(now, first_of(now))}).entry_above()
    for few in (None, terms.few):
        _claim_level(session, consumer_id, 0, terms._replace(few=few), level)


def _claim_level(
    session: Session, consumer_id: int, wanted: int, terms: Terms, entry: Entry
) -> Claimed | None:
    """Claim jobs of the only priority in the entry, by a statement that is quicker than claim.sql.

    Return None if there are jobs of other priorities, or if the claim has to be refused.
    """
    [priority], [mark_at], [mark_id] = entry.priorities, entry.mark_ats, entry.mark_ids
    params = {
        "consumer_id": consumer_id,
        "wanted": wanted,
        **terms._asdict(),
        "priority": priority,
        "mark_at": mark_at,
        # Of one type: a small number would be a smallint, for which the server plans once more.
        "mark_id": Int8(mark_id),
        "lowest": first_of(mark_at - AROUND) if terms.few else None,
        "highest": first_of(mark_at + AROUND) if terms.few else None,
    }
    for row in session.run("claim_level", params):
        return _from_level(row, priority)
    return None


def _from_level(row: Row, priority: int) -> Claimed:
    ids = row.job_ids
    if ids is None:
        return _claimed(row, [], {priority: None}, passed=False)
    priorities = [priority] * len(ids)
    if row.retry_counts is None:
        retry_counts, deliveries, suspects = ([value] * len(ids) for value in FRESH)
        row = row._replace(retry_counts=retry_counts, deliveries=deliveries, suspects=suspects)
    position = Position(row.reached_at, row.reached_id)
    claimed = _claimed(row, held_jobs(row, priorities), {priority: position}, passed=False)
    return claimed._replace(sure=row.sure, messages=_inline_messages(row))


def _inline_messages(row: Row) -> list[StoredMessage]:
    if row.inline_ids is None:
        return []
    return list(
        map(
            StoredMessage,
            row.inline_ids,
            row.payloads,
            row.content_types,
            row.given_headers,
            row.published,
            row.client_message_ids,
            row.keys,
        )
    )


def _claim(session: Session, consumer_id: int, wanted: int, terms: Terms, entry: Entry) -> Claimed:
    params = {
        "consumer_id": consumer_id,
        "wanted": wanted,
        **terms._asdict(),
        **entry._asdict(),
    }
    [row] = session.run("claim", params)
    reached = {
        priority: Position(at, id) if at else None
        for priority, at, id in zip(row.walked, row.reached_ats, row.reached_ids, strict=True)
    }
    refusal = None if row.refusal is None else Refusal(row.refusal)
    jobs = held_jobs(row, row.job_priorities)
    claimed = _claimed(row, jobs, reached, passed=row.passed, refusal=refusal)
    return claimed.without_jobs(refusal) if refusal is Refusal.REPEATED else claimed


def _claimed(
    row: Row,
    jobs: list[HeldJob],
    reached: dict[int, Position | None],
    *,
    passed: bool,
    refusal: Refusal | None = None,
) -> Claimed:
    return Claimed(
        row.started_at,
        Snapshot.parse(row.snapshot),
        row.xid,
        Taken(row.lease_token, row.leased_until) if row.lease_token else None,
        jobs,
        reached,
        passed,
        None if row.next_due_seconds is None else timedelta(seconds=row.next_due_seconds),
        refusal,
    )
