"""Keys that take turns: jobs in flight by key, rates by key and fair shares.

`pulljobs_flow_key` has a row for each key with live jobs. The rows with a `turn_at` are the ring: a
claim takes keys from its front, serves each with a few jobs and puts it back behind all others.
Every transaction that claims a job of a key, or frees a slot of it, writes the row. So a claim may
decide by a row if it has locked the version that its snapshot shows.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from pulljobs.engine.claiming.keyed import Key, key_columns
from pulljobs.engine.claiming.turns import free_turns
from pulljobs.storage import keys, listen
from pulljobs.storage.rows import NotYet, Refusal, Taken
from pulljobs.storage.statements import (
    LOCK_SECONDS,
    LONGEST_SECONDS,
    AliasSession,
    brief,
    retrying,
    run,
)

LOOKED_AT: Final = 5_000
"""Keys that a sweep looks at."""
FIRST_KEY: Final = (0, "")
_swept_up_to: dict[str, Key] = {}
"""Last key that this process has swept, by database alias."""
COUNTED_KEYS: Final = 1_000
COUNTED_JOBS: Final = 10_000


class KeyTurn(NamedTuple):
    """Row of turn_of_job.sql: the limits of a key at a moment."""

    now: datetime
    slots: int | None
    """None: any number."""
    holder_ids: list[int]
    tokens: float
    burst: float
    per_second: float | None
    """None: no rate by key."""
    token_seconds: float | None
    throttle_seconds: float | None

    @property
    def is_full(self) -> bool:
        """True if jobs of the key hold all its slots."""
        return self.slots is not None and len(self.holder_ids) >= self.slots

    def seconds_to(self, tokens: float) -> float:
        """Return the seconds until the key has that many tokens: 0 if it has, or has no rate."""
        missing = max(tokens - self.tokens, 0.0)
        return missing / self.per_second if self.per_second else 0.0


class JobsBefore(NamedTuple):
    """Row of jobs_before.sql: what claims by key take before a job."""

    key_jobs: int
    key_cost: float
    """Tokens that the jobs of its key before it take."""
    jobs: int
    cost: float
    """Tokens that all jobs before it take, with those of other keys."""
    is_least: bool
    """True if there may be more."""


class HeldKeys(NamedTuple):
    """Row of held_keys.sql. Its counts end at a cap."""

    consumer_id: int
    full_keys: int
    """Keys without a free slot."""
    later_keys: int
    """Keys without a token, and throttled ones."""
    is_due: bool
    """True if the first key may be served now."""


TakeResult = Taken | Refusal | NotYet | None
"""New lease of one job, or the reason for getting none. None: the job is in another state."""


def free(using: str, freed: Collection[Key]) -> None:
    """Give turns to those of these keys that had no free slot, after jobs of theirs have ended."""
    if freed:
        keys.run_after_settlement(using, len(freed), lambda: free_turns(AliasSession(using), freed))


def sweep(using: str) -> bool:
    """Give turns to keys that lost theirs in a crash. Return True if more may remain.

    Each call looks at the next `LOOKED_AT` keys, so that a sweep is short however many there are.
    """
    after = _swept_up_to.get(using, FIRST_KEY)
    params = {"after_consumer_id": after[0], "after_key": after[1], "looked_at": LOOKED_AT}
    [row] = retrying(using, lambda: run(using, "sweep_turns", {**params, "wanted": keys.SWEPT}))
    listen.wake_on_commit(using, row.consumer_ids)
    if row.changed == keys.SWEPT:
        return True
    is_last = row.reached_key is None
    _swept_up_to[using] = FIRST_KEY if is_last else (row.reached_consumer_id, row.reached_key)
    return False


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


def read_turn(using: str, consumer_id: int, key: str, cost: int) -> KeyTurn:
    """Return the limits of a key. `token_seconds` is that of a job with this cost."""
    params = {"consumer_id": consumer_id, "key": key, "cost": cost}
    rows: list[KeyTurn] = run(using, "turn_of_job", params, kind=KeyTurn)
    return rows[0]


def count_before(using: str, consumer_id: int, job_id: int) -> JobsBefore | None:
    """Return what claims by key take before a waiting job, or None if there is no such job.

    At most `COUNTED_KEYS` keys and `COUNTED_JOBS` jobs of each are counted.
    """
    counted = {"most_keys": COUNTED_KEYS, "most_jobs": COUNTED_JOBS}
    params = {"consumer_id": consumer_id, "job_id": job_id, **counted}
    rows = run(using, "jobs_before", params, kind=JobsBefore)
    return rows[0] if rows else None


def count_held_keys(using: str, consumer_ids: Sequence[int], cap: int) -> dict[int, HeldKeys]:
    """Return the keys of these consumers, which go by key, that no claim may serve now."""
    if not consumer_ids:
        return {}
    params = {"consumer_ids": list(consumer_ids), "cap": cap}
    return {row.consumer_id: row for row in run(using, "held_keys", params, kind=HeldKeys)}


def throttle(using: str, seconds: Mapping[Key, float]) -> set[int]:
    """Let nothing of these keys be claimed for so many seconds.

    Return the consumers whose claims go by key; nothing was written for others.
    """
    params = {**key_columns(seconds), "seconds": list(seconds.values())}
    with brief(using, lock_seconds=LOCK_SECONDS):
        rows = run(using, "throttle_keys", params)
    return {row.consumer_id for row in rows}


def end_throttles(using: str, consumer_id: int) -> None:
    """End the throttles of all keys of a consumer."""
    run(using, "end_throttles", {"consumer_id": consumer_id}, seconds=LONGEST_SECONDS)


def set_weight(using: str, consumer_id: int, key: str, weight: int) -> None:
    """Set how many jobs a key gives in a turn."""
    run(using, "set_weight", {"consumer_id": consumer_id, "key": key, "weight": weight})
