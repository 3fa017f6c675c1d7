"""Completion of batches after merges of their new counts: at once, by a loop, or by a sweep."""

import logging
import threading
from collections.abc import Collection
from typing import Final

from pulljobs import hooks
from pulljobs.conf import settings
from pulljobs.storage.statements import run
from pulljobs.workflows.batches.deciding import Look, look

logger = logging.getLogger("pulljobs.workflows")

LOOP: Final = "batches"
"""Name of the loop in `hooks.worker_loops`."""
SWEPT: Final = 200
"""Largest number of batches that one call of `sweep` takes."""

ALL: Final = 100_000
"""Limit of a sweep in tests, which make fewer batches."""


class NotedBatches:
    """Ids of batches with new counts, which the batch loop of this process has to merge."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._ids)

    def add(self, batch_ids: Collection[int]) -> bool:
        """Note batches. Return True if the loop has to be woken: none was noted before."""
        with self._lock:
            is_first = not self._ids
            self._ids.update(batch_ids)
        return is_first

    def take(self) -> set[int]:
        with self._lock:
            taken, self._ids = self._ids, set()
        return taken


noted: Final = NotedBatches()


def listen(using: str, batch_ids: Collection[int]) -> None:
    """Pass batches with new counts to the batch loop of this worker, or complete them here.

    They are completed here without such a loop, and in a worker with BURST or ONCE, because a
    callback fills the queue again.
    """
    wake = hooks.loop_wakers.get(LOOP)
    if wake is None or settings().BURST or settings().ONCE:
        look_at_each(using, batch_ids)
    elif noted.add(batch_ids):
        wake()


def look_at_each(using: str, batch_ids: Collection[int]) -> set[int]:
    """Merge the counts of batches, and complete those that have ended, in the order of their ids.

    Return the ids of the batches that another transaction has locked.
    """
    return {id for id in sorted(batch_ids) if look(using, id) is Look.LOCKED}


def look_at_noted(using: str) -> None:
    """Merge the counts of noted batches before the process ends, and complete those that ended."""
    look_at_each(using, noted.take())


def sweep(using: str, after: int = 0) -> int | None:
    """Merge the counts of the `SWEPT` next batches with sums, and complete those that have ended.

    Return the last id, as `after` of the next call, or None if there are no more. A sweep finds
    batches for which a process crashed between a settlement and the decision. It deletes the sums
    of batches that no longer exist.
    """
    rows = run(using, "batches_to_look_at", {"after": after, "wanted": SWEPT})
    look_at_each(using, [row.batch_id for row in rows if row.is_known])
    if unknown := [row.batch_id for row in rows if not row.is_known]:
        run(using, "forget_batch_sums", {"batch_ids": unknown})
    return rows[-1].batch_id if len(rows) == SWEPT else None


def sweep_all(using: str) -> bool:
    """Merge the new counts of all batches until none of them completes, for tests.

    Return True if a batch has completed, or goes on after a redrive.
    """
    has_decided = False
    while _sweep_once(using):
        has_decided = True
    return has_decided


def _sweep_once(using: str) -> bool:
    rows = run(using, "batches_to_look_at", {"after": 0, "wanted": ALL})
    looks = [look(using, row.batch_id) for row in rows if row.is_known]
    return Look.DECIDED in looks
