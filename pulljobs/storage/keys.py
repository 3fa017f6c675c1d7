"""Exclusive keys: at most one job of a key is in flight, and jobs of a key run in order.

A transaction that changes which job of a key runs locks the key's row and decides in a later
statement, whose snapshot has everything that was committed before the lock. Claims skip locked
keys. A transaction that frees a key waits for the lock. A claim blocks the jobs behind a busy key:
it takes them out of the claim index, so that later claims do not meet them until the key is free.
"""

import logging
from collections.abc import Callable, Collection
from typing import Final, TypeVar

from django.db import DatabaseError

from pulljobs.engine.claiming.keyed import Key, free_keys, lock_keys
from pulljobs.storage import listen
from pulljobs.storage.statements import (
    LOCK_SECONDS,
    AliasSession,
    brief,
    in_transaction,
    is_wait,
    retrying,
    run,
)

logger = logging.getLogger("pulljobs.storage")

SWEPT: Final = 1_000
Took = TypeVar("Took")


def free(using: str, keys: Collection[Key], let_go: Collection[int] = ()) -> None:
    """Let the next job of each key be claimed, if the key's job has ended or is in `let_go`."""
    if not keys:
        return

    session = AliasSession(using)
    run_after_settlement(
        using, len(keys), lambda: free_keys(session, lock_keys(session, keys), let_go)
    )


def run_after_settlement(using: str, number: int, work: Callable[[], object]) -> None:
    """Free that many keys in a transaction of their own. If it fails, the sweep frees them."""

    def free_all() -> None:
        with brief(using, lock_seconds=LOCK_SECONDS):
            work()

    try:
        retrying(using, free_all)
    except DatabaseError as error:
        # What freed them is committed, or will be: then the sweep frees the keys.
        if in_transaction(using) and not is_wait(error):
            raise
        logger.warning("%d keys could not be freed: %s", number, error)


def sweep(using: str) -> bool:
    """Free keys left behind by crashes and delete idle keys. Return True if more may remain."""
    forgotten = run(using, "idle_bounded_keys", {"wanted": SWEPT})

    def work() -> tuple[list[Key], bool]:
        with brief(using):
            rows = run(using, "stuck_keys", {"wanted": SWEPT})
            stuck = [(row.consumer_id, row.key) for row in rows]
            return stuck, free_keys(AliasSession(using), stuck, ())

    swept, changed = retrying(using, work)
    if changed:
        listen.wake_on_commit(using, [consumer_id for consumer_id, _key in swept])
    # A key whose jobs are locked does not change, and would be found again at once.
    return len(forgotten) == SWEPT or (changed and len(swept) == SWEPT)


def take(using: str, consumer_id: int, job_id: int, work: Callable[[], Took]) -> Took:
    """Return the result of `work`, called while the key of the job is locked."""
    with brief(using):
        run(using, "lock_key_of_job", {"consumer_id": consumer_id, "job_id": job_id})
        return work()
