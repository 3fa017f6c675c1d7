"""Exclusive keys: of each key of a consumer one job is in flight at most, the first one first.

Every change to what runs of a key is made under the lock of the key's row, and decided by a later
statement, whose snapshot has all that was committed before the lock. Claims skip keys that somebody
has locked; who frees a key waits for it. A claim takes the jobs that wait behind a busy key out of
its index (blocks them), so that nobody meets them again until the key is free.
"""

import logging
from collections.abc import Callable, Collection
from typing import Final, TypeVar

from django.db import DatabaseError, connections

from pulljobs.engine.claiming.keyed import Key, free_keys, lock_keys
from pulljobs.storage import listen
from pulljobs.storage.statements import AliasSession, brief, retrying, run

logger = logging.getLogger("pulljobs.storage")

SWEPT: Final = 1_000
Took = TypeVar("Took")


def free(using: str, keys: Collection[Key], let_go: Collection[int] = ()) -> None:
    """Let the next job of each key be claimed, if its job is settled or has `let_go` of it."""
    if not keys:
        return

    def work() -> None:
        with brief(using):
            session = AliasSession(using)
            free_keys(session, lock_keys(session, keys), let_go)

    if connections[using].in_atomic_block:
        work()
        return
    try:
        retrying(using, work)
    except DatabaseError as error:
        # What freed them is committed. The sweep sees to the keys.
        logger.warning("%d keys could not be freed: %s", len(keys), error)


def sweep(using: str) -> bool:
    """Free what those left behind who died at it, and forget idle keys; whether there is more."""
    forgotten = run(using, "idle_bounded_keys", {"wanted": SWEPT})

    def work() -> tuple[list[Key], bool]:
        with brief(using):
            rows = run(using, "stuck_keys", {"wanted": SWEPT})
            stuck = [(row.consumer_id, row.key) for row in rows]
            return stuck, free_keys(AliasSession(using), stuck, ())

    swept, changed = retrying(using, work)
    if changed:
        listen.wake_on_commit(using, [consumer_id for consumer_id, _key in swept])
    # Of those whose jobs somebody has locked none changes: they would be found again at once.
    return len(forgotten) == SWEPT or (changed and len(swept) == SWEPT)


def take(using: str, consumer_id: int, job_id: int, work: Callable[[], Took]) -> Took:
    """What `work` takes while the key of that job is locked."""
    with brief(using):
        run(using, "lock_key_of_job", {"consumer_id": consumer_id, "job_id": job_id})
        return work()
