"""Keys that take turns, for consumers with limits of each key or with fair shares.

`pulljobs_flow_key` has a row for each key whose live jobs a claim has met. The rows with a
`turn_at` are the ring: a claim takes keys from its front, takes a few jobs of each and puts it back
behind all others. A slot of a key is room for a job in flight (`max_in_flight_per_key`). Every
transaction that claims a job of a key, or frees a slot of it, writes the row. So a claim may decide
by a row if it has locked the version that its snapshot shows.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from pulljobs.engine.claiming.keyed import Key, key_columns
from pulljobs.engine.claiming.turns import free_turns
from pulljobs.storage import keys, listen
from pulljobs.storage.rows import NotYet, Refusal, Taken
from pulljobs.storage.sessions import LOCK_SECONDS, LONGEST_SECONDS
from pulljobs.storage.statements import AliasSession, run
from pulljobs.storage.transactions import brief, retrying

LOOKED_AT: Final = 5_000
"""Number of keys that one call of `sweep` checks."""
FIRST_KEY: Final = (0, "")
_swept_up_to: dict[str, Key] = {}
"""Key after which the next call of `sweep` begins, by database alias."""
COUNTED_KEYS: Final = 1_000
COUNTED_JOBS: Final = 10_000


class KeyTurn(NamedTuple):
    """State of the limits of a key at the time `now`: a row of turn_of_job.sql."""

    now: datetime
    slots: int | None
    """Jobs of the key that may be in flight at once, or None for any number."""
    holder_ids: list[int]
    tokens: float
    burst: float
    per_second: float | None
    """Rate of the key in tokens, or None if keys have no rate."""
    token_seconds: float | None
    throttle_seconds: float | None

    @property
    def is_full(self) -> bool:
        """True if as many jobs of the key are in flight as its consumer allows."""
        return self.slots is not None and len(self.holder_ids) >= self.slots

    def seconds_to(self, tokens: float) -> float:
        """Return the seconds until the key has `tokens`: 0 if it has them now, or has no rate."""
        missing = max(tokens - self.tokens, 0.0)
        return missing / self.per_second if self.per_second else 0.0


class JobsBefore(NamedTuple):
    """Numbers and costs of the jobs that claims take before a job that waits for a turn."""

    key_jobs: int
    key_cost: float
    """Tokens of the key's rate that the jobs of its key before it take."""
    jobs: int
    cost: float
    """Tokens that all jobs before it take, with those of other keys."""
    is_least: bool
    """True if there may be more jobs before it, because the count reached its bounds."""


class HeldKeys(NamedTuple):
    """Numbers of keys of a consumer that no claim may serve now, capped: a row of held_keys.sql."""

    consumer_id: int
    full_keys: int
    """Number of keys with as many jobs in flight as their limit allows."""
    later_keys: int
    """Number of keys without a token of their rate, or throttled."""
    is_due: bool
    """True if the first key may be served now."""


class TurnKeys(NamedTuple):
    """Keys of a consumer to claim next, counts of keys at a limit: a row of keys_of_turns.sql."""

    consumer_id: int
    throttled_keys: int
    full_keys: int
    """Number of keys with as many jobs in flight as their limit allows."""
    next_keys: Sequence[str]
    """Keys that may be served now, in the order of their turns."""
    due_since: Sequence[datetime]
    """For each of `next_keys`, the time from which it may be served."""


TakeResult = Taken | Refusal | NotYet | None
"""New lease of one job, or why it can't be claimed. None: it is not in the expected state."""


def free(using: str, freed: Collection[Key]) -> None:
    """Give turns, after jobs ended, to keys that had none because of `max_in_flight_per_key`."""
    if freed:
        keys.run_after_settlement(using, len(freed), lambda: free_turns(AliasSession(using), freed))


def sweep(using: str) -> bool:
    """Give turns to keys that a crash has left without, and delete rows of keys without jobs.

    Each call checks the next `LOOKED_AT` keys, so that it is short however many there are. Return
    True if it should be called again at once, because it had to repair many.
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
    """Call `work`, which claims a job by its id, if the limits of the job's key allow it.

    Return its result, or the limit that refuses the claim.
    """
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
    """Return the state of the limits of a key, with `token_seconds` for a job of this cost."""
    params = {"consumer_id": consumer_id, "key": key, "cost": cost}
    rows: list[KeyTurn] = run(using, "turn_of_job", params, kind=KeyTurn)
    return rows[0]


def count_before(using: str, consumer_id: int, job_id: int, burst: float) -> JobsBefore | None:
    """Count the jobs that claims take before a waiting job whose consumer's keys take turns.

    Also sum up the tokens of its rate that they take, a job that costs more than `burst` as that
    many. Return None if the consumer has no such job. At most `COUNTED_KEYS` keys and
    `COUNTED_JOBS` jobs of each are counted.
    """
    counted = {"most_keys": COUNTED_KEYS, "most_jobs": COUNTED_JOBS, "burst": burst}
    params = {"consumer_id": consumer_id, "job_id": job_id, **counted}
    rows = run(using, "jobs_before", params, kind=JobsBefore)
    return rows[0] if rows else None


def count_held_keys(using: str, consumer_ids: Sequence[int], cap: int) -> dict[int, HeldKeys]:
    """Count, by consumer id, the keys that no claim may serve now, up to `cap`.

    The keys of these consumers take turns.
    """
    if not consumer_ids:
        return {}
    params = {"consumer_ids": list(consumer_ids), "cap": cap}
    return {row.consumer_id: row for row in run(using, "held_keys", params, kind=HeldKeys)}


def read_turn_keys(
    using: str, consumer_ids: Sequence[int], cap: int, most_keys: int
) -> dict[int, TurnKeys]:
    """Return by consumer id its next `most_keys` keys, and how many are full or throttled.

    The keys of these consumers take turns. Counts are at most `cap`.
    """
    if not consumer_ids:
        return {}
    params = {"consumer_ids": list(consumer_ids), "cap": cap, "most_keys": most_keys}
    return {row.consumer_id: row for row in run(using, "keys_of_turns", params, kind=TurnKeys)}


def throttle(using: str, seconds: Mapping[Key, float]) -> set[int]:
    """Throttle keys, each for its number of seconds, of consumers whose keys take turns.

    A throttle that lasts longer stays. Return the ids of these consumers. Others are not throttled.
    """
    params = {**key_columns(seconds), "seconds": list(seconds.values())}
    with brief(using, lock_seconds=LOCK_SECONDS):
        rows = run(using, "throttle_keys", params)
    return {row.consumer_id for row in rows}


def end_throttles(using: str, consumer_id: int) -> None:
    """End the throttles of all keys of a consumer."""
    run(using, "end_throttles", {"consumer_id": consumer_id}, seconds=LONGEST_SECONDS)


def set_weight(using: str, consumer_id: int, key: str, weight: int) -> None:
    """Set the weight of a key: how many of its jobs a claim takes in one turn."""
    params = {"consumer_id": consumer_id, "key": key, "weight": weight}
    run(using, "set_weight", params, seconds=LONGEST_SECONDS)
