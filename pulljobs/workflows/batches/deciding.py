"""Merging of the counts of batches, and the decision that completes a batch once.

Statements that publish, settle or redrive members append rows to `pulljobs_batch_sum`, and a merge
adds these rows to the counts of the batch. The decision locks the batch, and merges again in a
statement whose snapshot has everything that committed before the lock. It publishes the callbacks
in the transaction that completes the batch.
"""

from enum import Enum, auto

from django.db import OperationalError, transaction

from pulljobs import emission
from pulljobs.engine.sql import Row
from pulljobs.errors import PublishError
from pulljobs.outcome_texts import clean
from pulljobs.storage import batches
from pulljobs.storage.sessions import LOCK_SECONDS
from pulljobs.storage.statements import run
from pulljobs.storage.transactions import brief, is_wait
from pulljobs.workflows import signals
from pulljobs.workflows.batches import callbacks
from pulljobs.workflows.batches.telemetry import BatchCompleted, BatchReopened, CallbackRefused


class Look(Enum):
    """Result of merging the counts of one batch."""

    NOTHING = auto()
    """The counts are merged. The batch neither completes nor begins another round, or is gone."""
    DECIDED = auto()
    """The batch is complete, or has begun another round because of a redrive."""
    LOCKED = auto()
    """Another transaction had the batch, or a row that its end needs, locked: look again soon."""
    REFUSED = auto()
    """A callback was refused, so the batch is not complete yet. The next sweep tries again."""


def look(using: str, batch_id: int) -> Look:
    """Merge the new counts of a batch, and complete it if it is closed and all members have ended.

    Begin another round of a complete batch whose dead members were redriven. Return what was done,
    or what prevented it.
    """
    params = {"batch_id": batch_id, "is_decision": False}
    [row] = run(using, "merge_batch_sums", params, seconds=LOCK_SECONDS)
    if not row.is_free:
        return Look.LOCKED
    if not row.is_due:
        return Look.NOTHING
    try:
        return _decide(using, batch_id)
    except OperationalError as error:
        if not is_wait(error):
            raise
        return Look.LOCKED  # Such as the key of a callback. Other batches must not wait for it.


def _decide(using: str, batch_id: int) -> Look:
    with brief(using, lock_seconds=LOCK_SECONDS):
        if not run(using, "lock_batch", {"batch_id": batch_id}):
            return Look.LOCKED
        try:
            with transaction.atomic(using=using):
                return _complete(using, batch_id)
        except PublishError as error:
            params = {"batch_id": batch_id, "error": clean(str(error))}
            run(using, "note_refusal", params)
            emission.emit_on_commit(using, CallbackRefused(batch_id, str(error)))
            return Look.REFUSED


def _complete(using: str, batch_id: int) -> Look:
    run(using, "merge_batch_sums", {"batch_id": batch_id, "is_decision": True})
    rows = run(using, "decide_batch", {"batch_id": batch_id})
    if not rows:
        return Look.NOTHING
    [batch] = rows
    if batch.parent_id is not None:
        _count_in_parent(using, batch)
    if batch.was_complete:
        emission.emit_on_commit(using, BatchReopened(batch_id, batch.round))
    if batch.is_complete:
        _end(using, batch)
    return Look.DECIDED


def _end(using: str, batch: Row) -> None:
    """Publish the callbacks of a batch that is complete, and make the run due that waits for it."""
    callbacks.publish(using, batch)
    if batch.run_id is not None:
        signals.make_due(using, [batch.run_id])
    event = BatchCompleted(batch.id, batch.round, batch.members, batch.dead)
    emission.emit_on_commit(using, event)


def _count_in_parent(using: str, batch: Row) -> None:
    """Append the change of this batch, as a member, to the counts of the batch that contains it.

    A batch that begins another round was counted as dead, because one of its members was.
    """
    reopened, ended = int(batch.was_complete), int(batch.is_complete)
    dead = int(batch.dead > 0) * ended
    params = {
        "batch_id": batch.parent_id,
        "members": 0,
        "delivered": ended - dead,
        "dead": dead - reopened,
        "redriven": reopened,
    }
    run(using, "append_batch_sum", params)
    batches.announce(using, [batch.parent_id])
