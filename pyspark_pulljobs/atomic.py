"""Atomic bulk publishes: tasks stage their rows in a table, and one transaction publishes all."""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid4

import psycopg
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pulljobs.errors import LakeError
from pyspark_pulljobs import publish_ledger, rows, staging
from pyspark_pulljobs.badrows import BadRows
from pyspark_pulljobs.chunks import cut_chunks
from pyspark_pulljobs.database_session import Session, open_session
from pyspark_pulljobs.publish_ledger import Publish, SinkBatch
from pyspark_pulljobs.requests import Address, Request
from pyspark_pulljobs.storing import Store

logger = logging.getLogger("pulljobs.lake")

ATTEMPTS: Final = 5
"""Maximum number of attempts to publish, each of which may lose a conflict over locks."""
ENDED_ELSEWHERE: Final = (
    "Another run committed or aborted this publish in the meantime: run it again."
)
KEPT_BATCHES: Final = 100
"""Number of earlier batches of a sink that the ledger keeps. Spark repeats at most the last."""


@dataclass
class StagedTask(WriterCommitMessage):
    """Commit message that a task sends to Spark's driver: which rows it has staged."""

    writer: UUID | None
    """Id of the task's rows in the staging table, or None if the publish was done before."""
    publish: Publish
    rows: int = 0
    batch: SinkBatch | None = None


class AtomicWriter(DataSourceArrowWriter):
    """Spark's writer of an atomic publish, which Spark pickles for the tasks."""

    def __init__(self, request: Request, address: Address, publish: Publish) -> None:
        self._request, self._address, self._publish = request, address, publish

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedTask:
        if self._publish.is_done:
            return StagedTask(None, self._publish)
        with open_session(self._request.dsn) as session:
            return stage(session, self._request, self._publish, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if not self._publish.is_done:
            with open_session(self._request.dsn) as session:
                commit(session, self._request, self._address, self._publish.id, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        with open_session(self._request.dsn) as session:
            abort(session, self._publish.id)


def stage(
    session: Session,
    request: Request,
    publish: Publish,
    iterator: Iterator[pa.RecordBatch],
    batch: SinkBatch | None = None,
) -> StagedTask:
    """Copy the rows of a task to the staging table, which no reader of messages and jobs sees.

    Raise LakeError if that table is gone, because the publish has ended in the meantime.
    """
    publish_ledger.hold(session, publish.id)
    writer, context = uuid4(), TaskContext.get()
    chunks = cut_chunks(iterator, request.bounds)
    try:
        partition = context.partitionId() if context else 0
        count = staging.copy(session, publish.id, writer, partition, chunks)
    except psycopg.errors.UndefinedTable:
        raise LakeError(ENDED_ELSEWHERE) from None
    publish_ledger.touch(session, publish.id)
    return StagedTask(writer, publish, count, batch)


def commit(
    session: Session,
    request: Request,
    address: Address,
    publish_id: int,
    messages: Sequence[WriterCommitMessage | None],
    batch: SinkBatch | None = None,
) -> None:
    """Publish in one transaction the rows that the tasks staged, and drop the staging table.

    Nothing is published if an earlier run of the same publish has committed.
    """
    tasks = [message for message in messages if isinstance(message, StagedTask)]
    publish_ledger.hold(session, publish_id)
    store = _retry(lambda: _publish(session, request, address, publish_id, batch, tasks))
    if store is not None:
        store.free_keys_and_notify()
    staging.drop(session, publish_id)


def abort(session: Session, publish_id: int) -> None:
    """Mark the publish as aborted unless it is done, and abort abandoned atomic publishes.

    Staging tables that no open publish needs are dropped.
    """
    publish_ledger.settle(session, publish_id, publish_ledger.ABORTED, publish_ledger.Tally())
    staging.clean(session)


def _publish(
    session: Session,
    request: Request,
    address: Address,
    publish_id: int,
    batch: SinkBatch | None,
    tasks: Collection[StagedTask],
) -> Store | None:
    """Publish the staged rows in one transaction, and return the `Store` that has counted them.

    Return None if an earlier run has published them.
    """
    with session.atomic():
        if publish_ledger.lock(session, publish_id) == publish_ledger.DONE:
            return None
        staged = _read_chunks(session, publish_id, tasks)
        if request.stops_at_bad_rows:
            _stop_at_bad_rows(session, publish_id, staged)
        store = Store(session, publish_id, address, request)
        for chunk in staged:
            store.store_staged(chunk)
        publish_ledger.settle(session, publish_id, publish_ledger.DONE, store.tally)
        if batch is not None:
            below = batch.batch_id - KEPT_BATCHES
            session.run("forget_batches", {"query_id": batch.query_id, "below": below})
    return store


def _read_chunks(
    session: Session, publish_id: int, tasks: Collection[StagedTask]
) -> list[staging.StagedChunk]:
    """Read the numbers and sizes of the chunks that these tasks staged, in the order of the rows.

    Raise LakeError if another run has ended the publish, or if rows are missing, because a crash of
    the server emptied the staging table.
    """
    writers = [message.writer for message in tasks if message.writer is not None]
    try:
        staged = staging.read_chunks(session, publish_id, writers)
    except psycopg.errors.UndefinedTable:
        raise LakeError(ENDED_ELSEWHERE) from None
    rows = sum(chunk.messages + chunk.rejects for chunk in staged)
    if rows != (expected := sum(message.rows for message in tasks)):
        raise LakeError(
            f"The database has {rows:,} of {expected:,} staged rows; a crash of the server empties "
            "the staging table. Nothing was published: run the publish again."
        )
    return staged


def _stop_at_bad_rows(
    session: Session, publish_id: int, staged: Sequence[staging.StagedChunk]
) -> None:
    bad = BadRows()
    for chunk in staged:
        if chunk.rejects:
            values = staging.read_columns(session, publish_id, chunk.number, staging.REJECT_COLUMNS)
            bad.add(map(rows.Reject, *values))
    bad.stop("nothing was published")


def _retry(work: Callable[[], Store | None]) -> Store | None:
    """Run the work, and repeat it after a deadlock or a failed serialization.

    It runs at most `ATTEMPTS` times in all.
    """
    for attempt in range(1, ATTEMPTS):
        try:
            return work()
        except (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure):
            logger.info("Attempt %d to publish lost a conflict over locks: trying again.", attempt)
    return work()
