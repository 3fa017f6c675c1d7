"""Keys of exclusive consumers: at most one job of a key is in flight, and its jobs run in order.

A transaction that changes which job of a key runs locks the key's row. It decides in a later
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
from pulljobs.storage.sessions import LOCK_SECONDS, in_transaction
from pulljobs.storage.statements import AliasSession, run
from pulljobs.storage.transactions import brief, is_wait, retrying

logger = logging.getLogger("pulljobs.storage")

SWEPT: Final = 1_000
Took = TypeVar("Took")


def free(using: str, keys: Collection[Key], let_go: Collection[int] = ()) -> None:
    """Make the next job of each key claimable, if the job that held the key has ended.

    A live job in `let_go`, for example a retried one, no longer holds its key.
    """
    if not keys:
        return

    session = AliasSession(using)
    run_after_settlement(
        using, len(keys), lambda: free_keys(session, lock_keys(session, keys), let_go)
    )


def run_after_settlement(using: str, number: int, work: Callable[[], object]) -> None:
    """Call `work`, which frees `number` keys of settled jobs, in a transaction or savepoint.

    A database error is logged, because the settlement must not fail by it: `sweep` frees the keys.
    Inside the caller's transaction only errors of waits are logged, and others are raised.
    """

    def free_all() -> None:
        with brief(using, lock_seconds=LOCK_SECONDS):
            work()

    try:
        retrying(using, free_all)
    except DatabaseError as error:
        # The settlement is committed, or will be: then the sweep frees the keys.
        if in_transaction(using) and not is_wait(error):
            raise
        logger.warning("%d keys could not be freed: %s", number, error)


def sweep(using: str) -> bool:
    """Free up to 1,000 keys that a crash left busy, and delete rows of keys without jobs.

    Return True if more may remain.
    """
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
    """Call `work`, which claims a job by its id, under the lock of the job's key.

    Return the result of `work`.
    """
    with brief(using):
        run(using, "lock_key_of_job", {"consumer_id": consumer_id, "job_id": job_id})
        return work()
