"""Steps of `pulljobs lake replay` in Spark's tasks."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pulljobs.engine.encodings import array
from pyspark_pulljobs.database_session import Session, open_session

COLUMNS: Final = (
    "job_id long, consumer_id long, message_id long, payload binary, content_type string, "
    "headers string, key string, priority int, payload_bytes long"
)
"""Columns of the jobs to replay. The payload is NULL if the lake does not have it."""
FILL_BYTES: Final = 16 * 2**20
"""Approximate size of the payloads that are in memory at once."""


def drop_replayed(
    batches: Iterable[pa.RecordBatch], dsn: str, target: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield the batches without jobs that were replayed before to the same consumer.

    `target` is the id of the consumer, or None if each job goes to its own consumer again.
    """
    with open_session(dsn) as session:
        for batch in batches:
            params = {"job_ids": array(batch["job_id"].to_pylist()), "consumer_id": target}
            replayed = set(session.run("replayed", params))
            consumers = [target] * len(batch) if target else batch["consumer_id"].to_pylist()
            pairs = zip(batch["job_id"].to_pylist(), consumers, strict=True)
            yield batch.filter(pa.array([pair not in replayed for pair in pairs], pa.bool_()))


def fill_payloads(batches: Iterable[pa.RecordBatch], dsn: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches with payloads that the lake lacks, read from PostgreSQL.

    Payloads that PostgreSQL no longer has stay NULL.
    """
    with open_session(dsn) as session:
        for batch in (part for whole in batches for part in _cut_by_size(whole)):
            missing = pc.unique(batch["message_id"].filter(pc.is_null(batch["payload"])))
            if len(missing):
                yield _fill(batch, _read_payloads(session, missing.to_pylist()))
            else:
                yield batch


def _cut_by_size(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield parts of the batch whose payloads have about `FILL_BYTES`."""
    sizes = pc.cumulative_sum(pc.fill_null(batch["payload_bytes"], 0))
    parts = pc.divide(sizes, FILL_BYTES).to_pylist()
    for _part, rows in groupby(range(len(batch)), key=parts.__getitem__):
        first, *others = rows
        yield batch.slice(first, 1 + len(others))


def _read_payloads(session: Session, ids: list[int]) -> dict[int, bytes]:
    params = {"ids": array(ids), "lowest": min(ids), "highest": max(ids)}
    return {id: payload for id, payload, *_others in session.run("messages", params)}


def _fill(batch: pa.RecordBatch, payloads: dict[int, bytes]) -> pa.RecordBatch:
    pairs = zip(batch["payload"].to_pylist(), batch["message_id"].to_pylist(), strict=True)
    filled = [payloads.get(id) if payload is None else payload for payload, id in pairs]
    index = batch.schema.get_field_index("payload")
    return batch.set_column(index, batch.schema.field(index), pa.array(filled, pa.binary()))
