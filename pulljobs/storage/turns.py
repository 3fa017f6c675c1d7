"""Keys that take turns: jobs in flight by key, rates by key and fair shares.

`pulljobs_flow_key` has a row for each key with live jobs. The rows with a `turn_at` are the ring: a
claim takes keys from its front, serves each with a few jobs and puts it back behind all others.
Every transaction that claims a job of a key, or frees a slot of it, writes the row. So a claim may
decide by a row if it has locked the version that its snapshot shows.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pulljobs.engine.claiming.keyed import Key, key_columns
from pulljobs.engine.claiming.turns import free_turns
from pulljobs.storage import keys, listen
from pulljobs.storage.rows import NotYet, Refusal, Taken
from pulljobs.storage.statements import LOCK_SECONDS, AliasSession, brief, retrying, run


class KeyTurn(NamedTuple):
    """Row of turn_of_job.sql: the limits of a key at a moment."""

    now: datetime
    slots: int | None
    """None: any number."""
    holder_ids: list[int]
    tokens: float | None
    burst: float | None
    token_seconds: float | None
    throttle_seconds: float | None
    weight: int
    turn_at: datetime | None

    @property
    def is_full(self) -> bool:
        """True if jobs of the key hold all its slots."""
        return self.slots is not None and len(self.holder_ids) >= self.slots


TakeResult = Taken | Refusal | NotYet | None
"""New lease of one job, or the reason for getting none. None: the job is in another state."""


def free(using: str, freed: Collection[Key]) -> None:
    """Give turns to those of these keys that had no free slot, after jobs of theirs have ended."""
    if freed:
        keys.run_after_settlement(using, len(freed), lambda: free_turns(AliasSession(using), freed))


def sweep(using: str) -> bool:
    """Give turns to keys that lost theirs in a crash. Return True if more may remain."""
    rows = retrying(using, lambda: run(using, "sweep_turns", {"wanted": keys.SWEPT}))
    listen.wake_on_commit(using, {row.consumer_id for row in rows if row.gets_turn})
    return len(rows) == keys.SWEPT


def take(using: str, consumer_id: int, job_id: int, work: Callable[[], TakeResult]) -> TakeResult:
    """Return the result of `work`, called if the limits of the job's key allow a job."""
    params: dict[str, Any] = {"consumer_id": consumer_id, "job_id": job_id}
    with brief(using):
        locked = run(using, "lock_turn", params)
        if not locked:
            return work()
        params |= locked[0]._asdict()
        taken = _refusal(using, params) or work()
        if isinstance(taken, Taken):
            run(using, "hold_turn", params)
        return taken


def _refusal(using: str, params: Mapping[str, Any]) -> Refusal | NotYet | None:
    [turn] = run(using, "turn_of_job", params, kind=KeyTurn)
    if turn.throttle_seconds is not None:
        return NotYet(Refusal.THROTTLED, timedelta(seconds=turn.throttle_seconds))
    if turn.is_full:
        return Refusal.BUSY_KEY
    if turn.token_seconds is not None:
        return NotYet(Refusal.RATE_LIMITED, timedelta(seconds=turn.token_seconds))
    return None


def read_turn(using: str, consumer_id: int, key: str, cost: int) -> KeyTurn | None:
    """Return what is known about a key, or None if no claim has met a job of it.

    `token_seconds` is that of a job with this cost.
    """
    params = {"consumer_id": consumer_id, "key": key, "cost": cost}
    rows = run(using, "turn_of_job", params, kind=KeyTurn)
    return rows[0] if rows else None


def throttle(using: str, seconds: Mapping[Key, float]) -> set[int]:
    """Let nothing of these keys be claimed for so many seconds.

    Return the consumers whose claims go by key; nothing was written for others.
    """
    params = {**key_columns(seconds), "seconds": list(seconds.values())}
    with brief(using, lock_seconds=LOCK_SECONDS):
        rows = run(using, "throttle_keys", params)
    return {row.consumer_id for row in rows}


def set_weight(using: str, consumer_id: int, key: str, weight: int) -> None:
    """Set how many jobs a key gives in a turn."""
    run(using, "set_weight", {"consumer_id": consumer_id, "key": key, "weight": weight})
