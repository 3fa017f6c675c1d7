"""Claims of consumers without exclusive keys: one statement."""

from datetime import timedelta

from pulljobs.claiming.rows import Claimed, Refusal, Taken, Terms, held_jobs
from pulljobs.claiming.session import Session
from pulljobs.floors import Entry, Position, Snapshot


def claim(session: Session, consumer_id: int, wanted: int, terms: Terms, entry: Entry) -> Claimed:
    """Put up to `wanted` jobs under one new lease."""
    params = {
        "consumer_id": consumer_id,
        "wanted": wanted,
        **terms._asdict(),
        **entry._asdict(),
    }
    [row] = session.run("claim", params)
    started_at, snapshot, xid, token, leased_until, *arrays, passed, next_due, refusal = row
    *jobs, walked, ats, ids = arrays
    claimed = Claimed(
        started_at,
        Snapshot.parse(snapshot),
        xid,
        Taken(token, leased_until) if token else None,
        held_jobs(jobs),
        {
            priority: Position(at, id) if at else None
            for priority, at, id in zip(walked, ats, ids, strict=True)
        },
        passed,
        None if next_due is None else timedelta(seconds=next_due),
        None if refusal is None else Refusal(refusal),
    )
    return claimed.without_jobs(Refusal.REPEATED) if refusal == Refusal.REPEATED else claimed
