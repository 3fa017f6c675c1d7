"""Chunks of messages: rows of a DataFrame that one statement stores."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

import pyarrow as pa

from pulljobs.engine.validation import Limits, NewMessage
from pulljobs.errors import PublishError
from pyspark_pulljobs.arrow_rows import ArrowRows, Columns, flag_plain_rows
from pyspark_pulljobs.rows import Reject, decode_original, make_message, make_reject

CHUNK_ROWS: Final = 5_000
CHUNK_BYTES: Final = 8 * 1024 * 1024
FIELDS: Final = NewMessage._fields


def _make_columns() -> Columns:
    return {name: [] for name in FIELDS}


@dataclass
class Chunk:
    """Messages that one statement stores, and the rows between them that are not valid messages."""

    columns: Columns = field(default_factory=_make_columns)
    """Values of the messages, by field of NewMessage."""
    originals: list[int | None] = field(default_factory=list)
    """Id of the job that each message replays, or None if the message is no replay."""
    rejects: list[Reject] = field(default_factory=list)
    """Rows that are not valid messages."""
    size: int = 0
    """Bytes of the payloads, and characters of the corrupt records."""

    @property
    def count(self) -> int:
        """Number of messages, without the bad rows."""
        return len(self.originals)

    @property
    def rows(self) -> int:
        return self.count + len(self.rejects)

    @property
    def is_full(self) -> bool:
        has_many_rows = self.count >= CHUNK_ROWS or len(self.rejects) >= CHUNK_ROWS
        return has_many_rows or self.size >= CHUNK_BYTES

    def messages(self) -> list[NewMessage]:
        return list(map(NewMessage, *self.columns.values()))

    def checksum(self) -> int:
        """Return a checksum of all rows.

        Of a message, it covers payload, key and client message id. The sum over several chunks does
        not depend on the order of the rows or on where chunks end.
        """
        names = ("payload", "key", "client_message_id")
        values = zip(*map(self.columns.__getitem__, names), strict=True)
        return sum(
            crc32(payload, crc32(f"{key}\0{message_id}".encode()))
            for payload, key, message_id in values
        ) + sum(crc32(reject.payload or b"", crc32(reject.row.encode())) for reject in self.rejects)


def cut_chunks(batches: Iterable[pa.RecordBatch], limits: Limits) -> Iterator[Chunk]:
    """Convert all rows in their order to chunks, none of which is empty."""
    chunk = Chunk()
    for batch in batches:
        rows, plain = ArrowRows(batch), [*flag_plain_rows(batch, limits), False]
        for unreadable in rows.unreadable:
            plain[unreadable] = False
        index = 0
        while index < len(batch):
            if plain[index]:
                index = _add_plain(chunk, rows, index, plain.index(False, index))
            else:
                index = _add_checked(chunk, rows, index, limits)
            if chunk.is_full:
                yield chunk
                chunk = Chunk()
    if chunk.rows:
        yield chunk


def split(
    batches: Iterator[pa.RecordBatch], count: int
) -> tuple[Iterator[pa.RecordBatch], Iterator[pa.RecordBatch]]:
    """Return iterators over the first `count` rows and over the rest.

    The caller must read the first iterator to its end before the second.
    """
    rest: list[pa.RecordBatch] = []

    def first() -> Iterator[pa.RecordBatch]:
        left = count
        while left > 0 and (batch := next(batches, None)) is not None:
            yield batch.slice(0, left)
            rest.append(batch.slice(left))
            left -= len(batch)

    def others() -> Iterator[pa.RecordBatch]:
        yield from rest[-1:]
        yield from batches

    return first(), others()


def _add_plain(chunk: Chunk, rows: ArrowRows, first: int, end: int) -> int:
    """Add rows from `first` to below `end` until the chunk is full. Return the index of the next.

    The rows need no check.
    """
    end = min(
        end, first + CHUNK_ROWS - chunk.count, rows.end_within(CHUNK_BYTES - chunk.size, first)
    )
    for name, values in rows.plain(first, end).items():
        chunk.columns[name].extend(values)
    chunk.originals.extend(rows.columns["original_job"][first:end])
    chunk.size += rows.sizes[end - 1] - (rows.sizes[first - 1] if first else 0)
    return end


def _add_checked(chunk: Chunk, rows: ArrowRows, index: int, limits: Limits) -> int:
    """Check a row, add it as a message or as a bad row, and return the index after it."""
    row = rows.row(index)
    try:
        message, original = make_message(row, limits), decode_original(row.original_job)
    except PublishError as error:
        chunk.rejects.append(make_reject(row, error))
    else:
        for column, value in zip(chunk.columns.values(), message, strict=True):
            column.append(value)
        chunk.originals.append(original)
    chunk.size += len(row.payload or b"") + len(row.corrupt_record or "")
    return index + 1
