"""Publishing all or nothing: tasks stage their rows, one transaction publishes them."""

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
"""At a publish that loses a conflict over locks; nothing was published then."""
GONE: Final = "The publish was committed or given up by another run meanwhile: run it again."
KEPT_BATCHES: Final = 100
"""Of a sink, in the ledger: Spark repeats the last one at the most."""


@dataclass
class Brought(WriterCommitMessage):
    """A task's chunks are known by its writer; None: it had none to bring."""

    writer: UUID | None
    publish: Opened
    rows: int = 0
    batch: Batch | None = None


class AtomicWriter(DataSourceArrowWriter):
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
    """Bring what a task has; nobody sees it."""
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
    """Publish what the tasks brought, once; then forget it."""
    brought = [message for message in messages if isinstance(message, Brought)]
    ledger.hold(session, publish_id)
    store = _retrying(lambda: _publish(session, request, address, publish_id, batch, brought))
    if store is not None:
        store.tell()
    staging.drop(session, publish_id)


def abort(session: Session, publish_id: int) -> None:
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
    """None: it was done already."""
    with session.atomic():
        if ledger.lock(session, publish_id) == ledger.DONE:
            return None
        staged = _staged(session, publish_id, brought)
        if request.stops:
            _stop_at_bad_rows(session, publish_id, staged)
        store = Store(session, publish_id, address, request)
        for one in staged:
            store.store_staged(one)
        ledger.settle(session, publish_id, ledger.DONE, store.tally)
        if batch is not None:
            below = batch.batch_id - KEPT_BATCHES
            session.run("forget_batches", {"query_id": batch.query_id, "below": below})
    return store


def _staged(
    session: Session, publish_id: int, brought: Collection[Brought]
) -> list[staging.Staged]:
    """All that was brought; LakeError if the server lost it in a crash, for it is not logged."""
    writers = [one.writer for one in brought if one.writer is not None]
    try:
        staged = staging.staged(session, publish_id, writers)
    except psycopg.errors.UndefinedTable:
        raise LakeError(GONE) from None
    rows = sum(one.messages + one.rejects for one in staged)
    if rows != (wanted := sum(one.rows for one in brought)):
        raise LakeError(
            f"Of {wanted:,} rows that were staged the database has {rows:,}, as after a crash: "
            "nothing was published, run it again."
        )
    return staged


def _stop_at_bad_rows(session: Session, publish_id: int, staged: Sequence[staging.Staged]) -> None:
    bad = BadRows()
    for one in staged:
        if one.rejects:
            values = staging.read(session, publish_id, one.number, staging.REJECTS)
            bad.add(map(rows.Reject, *values))
    bad.stop("nothing was published")


def _retrying(work: Callable[[], Store | None]) -> Store | None:
    for attempt in range(1, ATTEMPTS):
        try:
            return work()
        except (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure):
            logger.info("Attempt %d to publish lost a conflict over locks; again.", attempt)
    return work()
