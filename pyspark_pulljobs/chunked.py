"""Chunked bulk publishes: each task publishes its rows in one transaction, once.

If the input of a task fails in the middle, Spark ends the task's rows as if they were complete, and
runs the task again. So a task may have committed only the first of its rows. A repeated task
compares these with its own first rows, and publishes the others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pulljobs.errors import LakeError
from pyspark_pulljobs import chunks, publish_ledger
from pyspark_pulljobs.badrows import BadRows
from pyspark_pulljobs.chunks import Chunk
from pyspark_pulljobs.database_session import Session, open_session
from pyspark_pulljobs.publish_ledger import Publish
from pyspark_pulljobs.requests import Address, Request
from pyspark_pulljobs.storing import Store

MODULUS: Final = 2**63
"""Modulus of checksums."""


@dataclass
class PublishedPartition(WriterCommitMessage):
    """Commit message that a task sends to Spark's driver: its partition is published."""

    partition: int


class ChunkedWriter(DataSourceArrowWriter):
    """Spark's writer of a chunked publish, which Spark pickles for the tasks.

    A run that continues an earlier one must have the same partitions. Otherwise it fails, and may
    have published rows twice.
    """

    def __init__(self, request: Request, address: Address, publish: Publish) -> None:
        self._request, self._address, self._publish = request, address, publish

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PublishedPartition:
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        if not self._publish.is_done:
            with open_session(self._request.dsn) as session:
                publish_ledger.hold(session, self._publish.id)
                self._publish_partition(session, partition, iterator)
                publish_ledger.touch(session, self._publish.id)
        return PublishedPartition(partition)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._publish.is_done:
            return
        partitions = {
            message.partition for message in messages if isinstance(message, PublishedPartition)
        }
        with open_session(self._request.dsn) as session, session.atomic():
            parts = publish_ledger.read_parts(session, self._publish.id)
            if parts.keys() - partitions:
                raise LakeError(
                    f"Publish {self._request.publish_id!r} was begun with partitions that this run "
                    "does not have: their rows are published twice. Partition as in the first run."
                )
            tally = publish_ledger.sum_tallies(part.tally for part in parts.values())
            publish_ledger.settle(session, self._publish.id, publish_ledger.DONE, tally)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: committed rows stay, and a publish repeated with the same id skips them."""

    def _publish_partition(
        self, session: Session, partition: int, batches: Iterator[pa.RecordBatch]
    ) -> None:
        store = Store(session, self._publish.id, self._address, self._request)
        with session.atomic():
            committed = publish_ledger.begin_part(session, self._publish.id, partition)
            repeated, remaining = chunks.split(batches, committed.tally.rows)
            self._compare(partition, committed.checksum, repeated)
            checksum = (committed.checksum + self._store(store, remaining)) % MODULUS
            if store.tally.rows:
                tally = publish_ledger.sum_tallies((committed.tally, store.tally))
                publish_ledger.settle_part(session, self._publish.id, partition, checksum, tally)
        store.free_keys_and_notify()

    def _store(self, store: Store, batches: Iterator[pa.RecordBatch]) -> int:
        checksum, bad = 0, BadRows()
        for chunk in self._chunks(batches):
            store.store(chunk)
            bad.add(chunk.rejects)
            checksum += chunk.checksum()
        if self._request.stops_at_bad_rows:
            bad.stop("this task published nothing")
        return checksum

    def _compare(self, partition: int, checksum: int, batches: Iterator[pa.RecordBatch]) -> None:
        """Raise LakeError unless these rows are those that the partition published before."""
        if sum(chunk.checksum() for chunk in self._chunks(batches)) % MODULUS != checksum:
            raise LakeError(
                f"Partition {partition} of publish {self._request.publish_id!r} published other "
                "rows before: partition and sort as in the first run, or write in mode atomic."
            )

    def _chunks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Chunk]:
        return chunks.cut_chunks(batches, self._request.bounds)
