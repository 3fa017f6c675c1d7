"""Claims of consumers whose keys take turns, and freeing of slots: see `storage.turns`.

A slot of a key is the right to have one of its jobs in flight, if the consumer limits these by key.
"""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from pulljobs.engine.claiming.keyed import CONTENDED, Key, key_columns
from pulljobs.engine.claiming.rows import Claimed, Refusal, RingView, Taken, Terms, held_jobs
from pulljobs.engine.low_water_marks import Entry, Position, Snapshot
from pulljobs.engine.outcomes import Held, held_columns
from pulljobs.engine.sql import Row, Session

DISCOVERED: Final = 1_000
"""Jobs whose keys get turns by one statement."""
DISCOVERING: Final = 0.005
"""Seconds after which a claim gives turns to no more keys, however many jobs wait."""
LISTED: Final = 1_000
"""Keys that get turns in the order of their names, before all jobs of a backlog were looked at."""
MOST_KEYS: Final = 1_000
"""Keys up to which a claim reads more and more, if the first have no slot or token."""


class _Discovery(NamedTuple):
    """Result of a walk over jobs above the low-water marks, which gave turns to their keys."""

    started_at: datetime
    snapshot: Snapshot
    xid: int | None
    reached: dict[int, Position | None]
    """Position up to which the keys of all jobs have turns, by priority."""
    is_full: bool
    """True if there may be further jobs."""
    turns: int
    """Number of keys that got a turn."""
    next_due: timedelta | None

    def then(self, later: "_Discovery") -> "_Discovery":
        """Return the results of this walk and of a `later` one, which continued it, as one result.

        Its snapshot is that of this walk, which bounds how far the low-water marks may rise.
        """
        reached = {
            priority: position or self.reached.get(priority)
            for priority, position in later.reached.items()
        }
        return later._replace(
            started_at=self.started_at,
            snapshot=self.snapshot,
            xid=later.xid or self.xid,
            reached=self.reached | reached,
        )


@dataclass(slots=True)
class TurnClaim:
    """Claim by key in three steps: `begin` gives turns to new keys, then `claim` and `look_again`.

    The other steps insert rows of keys, for which claims of other processes wait. So only `claim`
    may run in a transaction that has the limits locked.
    """

    discovery: _Discovery
    ring: Entry
    """Entry of claims into the ring, the index of the keys by their turns."""
    is_emptied: bool = False
    """True if the claim saw a key that has no further job."""

    def claim(
        self, session: Session, consumer_id: int, wanted: int, terms: Terms, entry: Entry
    ) -> Claimed:
        """Claim up to `wanted` jobs, of the keys whose turns come first, under one new lease."""
        params = {
            "consumer_id": consumer_id,
            "wanted": wanted,
            "priorities": sorted(self.discovery.reached, reverse=True),
            **terms._asdict(),
            "ring_ranks": self.ring.priorities,
            "ring_marks": self.ring.mark_ats,
            "ring_gap_tops": self.ring.gap_tops,
            "ring_gap_bottoms": self.ring.gap_bottoms,
        }
        keys = wanted
        while True:
            [row] = session.run("claim_turns", {**params, "keys": keys})
            self.is_emptied = self.is_emptied or row.is_emptied
            if not wanted or keys >= MOST_KEYS or not _met_only_held_keys(row):
                break
            keys = min(10 * keys, MOST_KEYS)
        claimed = _claimed(self.discovery, row, wanted)
        is_repeated = claimed.refusal is Refusal.REPEATED
        return claimed.without_jobs(Refusal.REPEATED) if is_repeated else claimed

    def look_again(
        self, session: Session, consumer_id: int, entry: Entry, claimed: Claimed
    ) -> Claimed:
        """Give turns to keys that got a job just when the claim ended their turns for lack of jobs.

        Another process may have seen that job while the key had its turn, and gave it no new turn.
        Return the claim with `more` set if a key got a turn. No further job is claimed here.
        """
        if not self.is_emptied or not _discover_once(session, consumer_id, entry).turns:
            return claimed
        if claimed.refusal is Refusal.KEY_LIMITED:
            claimed = claimed._replace(refusal=None)
        return claimed._replace(more=claimed.more or claimed.refusal is None)


def begin(session: Session, consumer_id: int, entry: Entry, ring: Entry) -> TurnClaim:
    """Give turns to the keys of jobs above the low-water marks, and return the claim to go on with.

    If there are too many jobs for one claim, the first keys by name get turns as well. So a new key
    need not wait until the claims have walked over all jobs that were published before its own.
    """
    end = time.monotonic() + DISCOVERING
    discovery = _discover_once(session, consumer_id, entry)
    while discovery.is_full and time.monotonic() < end:
        entry = entry.beyond(discovery.reached)
        discovery = discovery.then(_discover_once(session, consumer_id, entry))
    if discovery.is_full:
        session.run("discover_keys", {"consumer_id": consumer_id, "most": LISTED})
    return TurnClaim(discovery, ring)


def _discover_once(session: Session, consumer_id: int, entry: Entry) -> _Discovery:
    params = {"consumer_id": consumer_id, "wanted": DISCOVERED, **entry._asdict()}
    [row] = session.run("discover", params)
    return _Discovery(
        row.started_at,
        Snapshot.parse(row.snapshot),
        row.xid,
        {
            priority: Position(at, id) if at else None
            for priority, at, id in zip(row.walked, row.reached_ats, row.reached_ids, strict=True)
        },
        row.jobs == DISCOVERED and not row.is_held_up,
        row.turns,
        _to_timedelta(row.next_due_seconds),
    )


def _claimed(discovery: _Discovery, row: Row, wanted: int) -> Claimed:
    jobs = held_jobs(row, row.job_priorities) if row.lease_token else []
    more = len(jobs) < wanted and bool(discovery.is_full or row.has_turns)
    refusal = None if row.refusal is None else Refusal(row.refusal)
    if refusal is None and not jobs and wanted and not more and _is_limited(row):
        refusal = Refusal.KEY_LIMITED
    return Claimed(
        discovery.started_at,
        discovery.snapshot,
        row.xid or discovery.xid,
        Taken(row.lease_token, row.leased_until) if row.lease_token else None,
        jobs,
        discovery.reached,
        False,
        _next_due(discovery, row),
        refusal,
        more=more,
        by_turn=True,
        ring=_read_ring(row),
    )


def _read_ring(row: Row) -> RingView:
    first_turns = dict(zip(row.ranks, row.first_turns, strict=True))
    return RingView(row.started_at, Snapshot.parse(row.snapshot), row.xid, first_turns)


def _met_only_held_keys(row: Row) -> bool:
    """Return True if a claim got no job, because the keys that it saw were all at their limits."""
    return row.has_turns and row.lease_token is None and row.refusal is None


def _is_limited(row: Row) -> bool:
    return row.has_full or (row.turn_seconds is not None and not row.is_contended)


def _next_due(discovery: _Discovery, row: Row) -> timedelta | None:
    """Return the time until the next claim may get a job, or None if it is not known."""
    if row.pause_seconds is not None:
        return _to_timedelta(row.pause_seconds)
    contended = CONTENDED if row.is_contended else None
    waits = (contended, discovery.next_due, _to_timedelta(row.turn_seconds))
    return min((wait for wait in waits if wait is not None), default=None)


def _to_timedelta(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=max(seconds, 0))


def free_turns(session: Session, keys: Collection[Key]) -> bool:
    """Stop counting ended jobs of these keys as in flight. Return True if a key got a turn."""
    rows = session.run("lock_turns", key_columns(keys))
    locked = [(row.consumer_id, row.key) for row in rows]
    if not locked:
        return False
    [row] = session.run("free_turns", key_columns(locked))
    return bool(row.changed)


def give_back(session: Session, released: Sequence[Held]) -> None:
    """Give the tokens of jobs that this transaction has released back to the rates of keys."""
    if released:
        session.run("give_back_to_keys", held_columns(released))
