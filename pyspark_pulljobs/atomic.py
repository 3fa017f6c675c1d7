"""Atomic bulk publishes: tasks stage their rows, and one transaction publishes all of them."""

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
from pyspark_pulljobs import ledger, rows, staging
from pyspark_pulljobs.badrows import BadRows
from pyspark_pulljobs.ledger import Batch, Opened
from pyspark_pulljobs.requests import Address, Request
from pyspark_pulljobs.session import Session, opened
from pyspark_pulljobs.storing import Store

logger = logging.getLogger("pulljobs.lake")

ATTEMPTS: Final = 5
"""Maximum of attempts to publish. An attempt that loses a conflict over locks is rolled back."""
GONE: Final = "Another run committed or aborted this publish in the meantime: run it again."
KEPT_BATCHES: Final = 100
"""Batches of a sink that stay in the ledger. Spark repeats at most the last batch."""


@dataclass
class Brought(WriterCommitMessage):
    """Commit message of a task; its chunks bear the id `writer` (None: it staged nothing)."""

    writer: UUID | None
    publish: Opened
    rows: int = 0
    batch: Batch | None = None


class AtomicWriter(DataSourceArrowWriter):
    """Writer of an atomic publish."""

    def __init__(self, request: Request, address: Address, publish: Opened) -> None:
        self._request, self._address, self._publish = request, address, publish

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Brought:
        if self._publish.done:
            return Brought(None, self._publish)
        with opened(self._request.dsn) as session:
            return stage(session, self._request, self._publish, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if not self._publish.done:
            with opened(self._request.dsn) as session:
                commit(session, self._request, self._address, self._publish.id, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        with opened(self._request.dsn) as session:
            abort(session, self._publish.id)


def stage(
    session: Session,
    request: Request,
    publish: Opened,
    iterator: Iterator[pa.RecordBatch],
    batch: Batch | None = None,
) -> Brought:
    """Stage the rows of a task, where no reader of messages and jobs sees them."""
    ledger.hold(session, publish.id)
    writer, context = uuid4(), TaskContext.get()
    chunks = rows.chunks(iterator, request.bounds)
    try:
        partition = context.partitionId() if context else 0
        count = staging.copy(session, publish.id, writer, partition, chunks)
    except psycopg.errors.UndefinedTable:
        raise LakeError(GONE) from None
    ledger.touch(session, publish.id)
    return Brought(writer, publish, count, batch)


def commit(
    session: Session,
    request: Request,
    address: Address,
    publish_id: int,
    messages: Sequence[WriterCommitMessage | None],
    batch: Batch | None = None,
) -> None:
    """Publish the rows that the tasks staged, once, and drop the staging table."""
    brought = [message for message in messages if isinstance(message, Brought)]
    ledger.hold(session, publish_id)
    store = _retrying(lambda: _publish(session, request, address, publish_id, batch, brought))
    if store is not None:
        store.tell()
    staging.drop(session, publish_id)


def abort(session: Session, publish_id: int) -> None:
    """Mark the publish as aborted, and clean up after abandoned publishes."""
    ledger.settle(session, publish_id, ledger.ABORTED, ledger.Tally())
    staging.clean(session)


def _publish(
    session: Session,
    request: Request,
    address: Address,
    publish_id: int,
    batch: Batch | None,
    brought: Collection[Brought],
) -> Store | None:
    """Publish in one transaction; return None if an earlier run has published already."""
    with session.atomic():
        if ledger.lock(session, publish_id) == ledger.DONE:
            return None
        staged = _staged(session, publish_id, brought)
        if request.stops:
            _stop_at_bad_rows(session, publish_id, staged)
        store = Store(session, publish_id, address, request)
        for chunk in staged:
            store.store_staged(chunk)
        ledger.settle(session, publish_id, ledger.DONE, store.tally)
        if batch is not None:
            below = batch.batch_id - KEPT_BATCHES
            session.run("forget_batches", {"query_id": batch.query_id, "below": below})
    return store


def _staged(
    session: Session, publish_id: int, brought: Collection[Brought]
) -> list[staging.Staged]:
    """Return the staged chunks; raise LakeError if a crash of the server emptied the table."""
    writers = [message.writer for message in brought if message.writer is not None]
    try:
        staged = staging.staged(session, publish_id, writers)
    except psycopg.errors.UndefinedTable:
        raise LakeError(GONE) from None
    rows = sum(chunk.messages + chunk.rejects for chunk in staged)
    if rows != (wanted := sum(message.rows for message in brought)):
        raise LakeError(
            f"The database has {rows:,} of {wanted:,} staged rows; a crash of the server empties "
            "the staging table. Nothing was published: run the publish again."
        )
    return staged


def _stop_at_bad_rows(session: Session, publish_id: int, staged: Sequence[staging.Staged]) -> None:
    bad = BadRows()
    for chunk in staged:
        if chunk.rejects:
            values = staging.read(session, publish_id, chunk.number, staging.REJECTS)
            bad.add(map(rows.Reject, *values))
    bad.stop("nothing was published")


def _retrying(work: Callable[[], Store | None]) -> Store | None:
    for attempt in range(1, ATTEMPTS):
        try:
            return work()
        except (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure):
            logger.info("Attempt %d to publish lost a conflict over locks: trying again.", attempt)
    return work()
