"""Publishing to consumers that bound how many jobs of a key there may be.

A publisher locks a row of the key until its transaction ends, so the bound is exact. Claims,
finishes and kills never read that row. The caller runs the statements, on one of Django's
connections or in a task of Spark.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pulljobs.engine.encodings import array
from pulljobs.engine.sql import Params, Row
from pulljobs.engine.validation import FullKey, Published
from pulljobs.states import Reason, State

REPLACE: Final = "replace"
DROP_OLDEST: Final = "drop_oldest"
DROPPED: Final = "A newer message of its key was published, and there was no room for both."

Run = Callable[[str, Params], Sequence[Row]]
"""Function that runs a statement by its name, in the transaction of the publish."""
Key = tuple[int, str]
"""A consumer's id and a key."""


class _Full(NamedTuple):
    """Row of full_keys.sql: a consumer for which a key is full."""

    consumer_id: int
    name: str
    overflow: str
    surplus: int
    """Number of jobs above the bound if another one were queued."""
    queued: list[int]
    last_message_id: int

    @property
    def giving_way(self) -> list[int]:
        """Ids of queued jobs that can be dropped or replaced for a new job. They may be too few."""
        if self.overflow == REPLACE:
            return self.queued[-1:]  # The last one, because nothing may overtake.
        return self.queued[: self.surplus] if self.overflow == DROP_OLDEST else []

    @property
    def takes_none(self) -> bool:
        """True if too few queued jobs can give way to a new job, so that the publish is refused."""
        return len(self.giving_way) < (1 if self.overflow == REPLACE else self.surplus)


def lock(run: Run, messages: Sequence[Mapping[str, Any]]) -> None:
    """Lock the bounded keys of messages of one channel, in the same order for every publisher."""
    if keys := {message["key"] for message in messages} - {None}:
        run("lock_bounded_keys", {**messages[0], "keys": array(keys)})


def publish(run: Run, message: Mapping[str, Any]) -> tuple[Published, set[Key]]:
    """Publish a message by the parameters of publish_one.sql, inside the caller's atomic block.

    If the result has `full`, the caller rolls back. The returned keys are those of dropped jobs:
    the caller frees them after the commit, because before it their rows would be locked for claims.
    """
    full = _lock_full(run, message) if message["key"] is not None else []
    replacing = [
        full_key for full_key in full if full_key.overflow == REPLACE and not full_key.takes_none
    ]
    params = {**message, "replacing": [full_key.consumer_id for full_key in replacing]}
    [row] = run("publish_one", params)
    published = Published(row.message_id, row.job_ids, row.consumer_ids)
    refusing = next((full_key for full_key in full if full_key.takes_none), None)
    if published.message_id is None:
        return published, set()
    if refusing is not None:
        return Published(None, [], [], (), FullKey(refusing.name, refusing.last_message_id)), set()
    dropping = [full_key for full_key in full if full_key.overflow == DROP_OLDEST]
    _drop(run, dropping)
    freed = {(full_key.consumer_id, message["key"]) for full_key in dropping}
    return _replace(run, message, published, replacing), freed


def _lock_full(run: Run, message: Mapping[str, Any]) -> list[_Full]:
    """Lock the key of a message, and the queued jobs that have to give way to it.

    Return the consumers for which the key is full. If a claim takes one of these jobs meanwhile,
    the key may no longer be full, so its jobs are counted again.
    """
    lock(run, [message])
    while True:
        full = [_Full(**row._asdict()) for row in run("full_keys", message)]
        giving_way = [job_id for full_key in full for job_id in full_key.giving_way]
        if not giving_way or _all_locked(run, giving_way):
            return full


def _all_locked(run: Run, job_ids: Sequence[int]) -> bool:
    return len(run("lock_queued", {"job_ids": array(job_ids)})) == len(job_ids)


def _drop(run: Run, full: Sequence[_Full]) -> None:
    giving_way = [job_id for full_key in full for job_id in full_key.giving_way]
    if giving_way:
        params = {"job_ids": giving_way, "states": [State.QUEUED], "error": DROPPED}
        run("kill", {**params, "reason": Reason.KEY_OVERFLOW})


def _replace(
    run: Run, message: Mapping[str, Any], published: Published, replacing: Sequence[_Full]
) -> Published:
    """Give a published message to the queued jobs whose message it replaces.

    Return the result of the publish with these jobs as well, in the order of consumer ids.
    """
    if not replacing:
        return published
    giving_way = [job_id for full_key in replacing for job_id in full_key.giving_way]
    params = {**message, "message_id": published.message_id, "job_ids": array(giving_way)}
    rows = run("replace", params)
    made = dict(zip(published.consumer_ids, published.job_ids, strict=True))
    every = dict(sorted((made | {row.consumer_id: row.job_id for row in rows}).items()))
    replaced = tuple(row.job_id for row in rows)
    return Published(published.message_id, [*every.values()], [*every], replaced)
