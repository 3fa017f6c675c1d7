"""Conversion of DataFrame rows to messages; invalid rows become rejects."""

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import accumulate
from typing import Any, Final, NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from pulljobs import ids
from pulljobs.engine.validation import (
    BYTES,
    MAX_KEY_CHARS,
    PRIORITIES,
    TEXT,
    Draft,
    Limits,
    NewMessage,
    checked,
)
from pulljobs.errors import InvalidMessage, PublishError
from pyspark_pulljobs.columns import COLUMNS, CORRUPT

CHUNK_ROWS: Final = 5_000
CHUNK_BYTES: Final = 8 * 1024 * 1024
NO_HEADERS: Final[dict[str, str]] = {}


class Reject(NamedTuple):
    """Row that is not a valid message."""

    reason: str
    error: str
    row: str
    """Columns of the row as JSON; the payload is replaced by its size."""
    payload: bytes | None
    """Bytes of the payload, or of the whole record if Spark's reader could not parse it."""


FIELDS: Final = NewMessage._fields
Columns = Mapping[str, list[Any]]
"""Values by field of NewMessage."""


def _make_columns() -> Columns:
    return {name: [] for name in FIELDS}


@dataclass
class Chunk:
    """Messages that one statement stores, and the rejected rows between them."""

    columns: Columns = field(default_factory=_make_columns)
    """Values of the messages, by field of NewMessage."""
    originals: list[int | None] = field(default_factory=list)
    """Id of the job that each message replays; None: the message is no replay."""
    rejects: list[Reject] = field(default_factory=list)
    size: int = 0
    """Bytes of the payloads and corrupt records."""

    @property
    def count(self) -> int:
        """Number of messages."""
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
        """Return a checksum whose sum over chunks depends neither on their cut nor on row order."""
        names = ("payload", "key", "client_message_id")
        values = zip(*map(self.columns.__getitem__, names), strict=True)
        return sum(
            crc32(payload, crc32(f"{key}\0{message_id}".encode()))
            for payload, key, message_id in values
        ) + sum(crc32(reject.payload or b"", crc32(reject.row.encode())) for reject in self.rejects)


class _Unreadable(NamedTuple):
    """Value that can't be converted to a Python object."""

    error: str


def cut_chunks(batches: Iterable[pa.RecordBatch], limits: Limits) -> Iterator[Chunk]:
    """Convert all rows, valid or not, in their order to chunks, none of which is empty."""
    chunk = Chunk()
    for batch in batches:
        rows, plain = _Rows(batch), [*_plain(batch, limits), False]
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
    """Split off the first `count` rows.

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


class _Row(NamedTuple):
    """Values of a row, as Arrow converts them."""

    payload: Any
    is_text: bool
    """True if the payload was text."""
    key: Any
    priority: Any
    message_id: Any
    headers: Any
    content_type: Any
    delay: Any
    available_at: Any
    original_job: Any
    corrupt_record: Any


class _Rows:
    """Columns of a batch as Python lists; text payloads are bytes in UTF-8."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        payload = batch.column("payload")
        self._is_text = _is_text(payload.type)
        self._content_type = TEXT if self._is_text else BYTES
        binary = payload.cast(pa.large_binary())
        self.payloads: list[bytes | None] = binary.to_pylist()
        self.sizes = list(accumulate(pc.fill_null(pc.binary_length(binary), 0).to_pylist()))
        """Bytes of the payloads up to and including each row."""
        self.unreadable: set[int] = set()
        self.columns = {name: self._values(batch, name) for name in COLUMNS if name != "payload"}

    def _values(self, batch: pa.RecordBatch, name: str) -> list[Any]:
        if name not in batch.schema.names:
            return [None] * len(batch)
        try:
            values: list[Any] = batch.column(name).to_pylist()
        except (ValueError, OverflowError):  # At least one value is unreadable.
            values = [_convert(scalar) for scalar in batch.column(name)]
            self.unreadable |= {n for n, value in enumerate(values) if type(value) is _Unreadable}
        return values

    def plain(self, first: int, end: int) -> Columns:
        """Return the rows from `first` up to `end`, which need no check, as columns of messages."""
        count = end - first
        given = {name: values[first:end] for name, values in self.columns.items()}
        return {
            "payload": self.payloads[first:end],
            "content_type": [self._content_type] * count,
            "headers": [NO_HEADERS] * count,
            "key": given["key"],
            "priority": [priority or 0 for priority in given["priority"]],
            "client_message_id": given["message_id"],
            "delay": [None] * count,
            "available_at": [None] * count,
        }

    def end_within(self, size: int, first: int) -> int:
        """Return the end of the fewest rows from `first` on that reach `size` bytes."""
        before = self.sizes[first - 1] if first else 0
        return bisect_left(self.sizes, before + size, first) + 1

    def row(self, number: int) -> _Row:
        values = (column[number] for column in self.columns.values())
        return _Row(self.payloads[number], self._is_text, *values)


def _plain(batch: pa.RecordBatch, limits: Limits) -> list[bool]:
    """Return a flag for each row: True if fast checks of whole columns show that it is valid."""
    payload = batch.column("payload").cast(pa.large_binary())
    plain = pc.less_equal(pc.binary_length(payload), limits.MAX_PAYLOAD_BYTES)
    for name in batch.schema.names:
        column = batch.column(name)
        if name in ("key", "message_id"):
            long = pc.utf8_length(column)
            fits = pc.and_(pc.greater(long, 0), pc.less_equal(long, MAX_KEY_CHARS))
            fits = pc.and_not(fits, pc.match_substring(column, "\x00"))
        elif name == "priority":
            low, high = PRIORITIES[0], PRIORITIES[-1]
            fits = pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
        elif name == "payload" or (name == "original_job" and not _is_text(column.type)):
            continue
        else:
            fits = pc.is_null(column)
        plain = pc.and_(plain, pc.or_(pc.is_null(column), pc.fill_null(fits, False)))
    flags: list[bool] = pc.fill_null(plain, False).to_pylist()
    return flags


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _convert(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError) as error:
        return _Unreadable(str(error))


def _add_plain(chunk: Chunk, rows: _Rows, first: int, end: int) -> int:
    """Add the valid rows that fit into the chunk, and return the index after them."""
    end = min(
        end, first + CHUNK_ROWS - chunk.count, rows.end_within(CHUNK_BYTES - chunk.size, first)
    )
    for name, values in rows.plain(first, end).items():
        chunk.columns[name].extend(values)
    chunk.originals.extend(rows.columns["original_job"][first:end])
    chunk.size += rows.sizes[end - 1] - (rows.sizes[first - 1] if first else 0)
    return end


def _add_checked(chunk: Chunk, rows: _Rows, index: int, limits: Limits) -> int:
    """Check a row, add it as a message or reject, and return the index after it."""
    row = rows.row(index)
    try:
        message, original = _make_message(row, limits), _decode_original(row.original_job)
    except PublishError as error:
        chunk.rejects.append(_make_reject(row, error))
    else:
        for column, value in zip(chunk.columns.values(), message, strict=True):
            column.append(value)
        chunk.originals.append(original)
    chunk.size += len(row.payload or b"") + len(row.corrupt_record or "")
    return index + 1


def _make_message(row: _Row, limits: Limits) -> NewMessage:
    if row.corrupt_record is not None:
        raise InvalidMessage(
            "The row can't be read: its format or the type of a value is wrong. Correct the record."
        )
    if row.payload is None:
        raise InvalidMessage("The payload is NULL: leave out the row, or publish an empty text.")
    for name, value in zip(_Row._fields, row, strict=True):
        if type(value) is _Unreadable:
            raise InvalidMessage(f"{name} can't be read: {value.error}.")
    draft = Draft(
        payload=row.payload,
        key=row.key,
        priority=0 if row.priority is None else row.priority,
        message_id=row.message_id,
        headers=_decode_headers(row.headers),
        content_type=row.content_type,
        delay=_make_delay(row.delay),
        available_at=row.available_at,
    )
    return checked(draft, row.payload, TEXT if row.is_text else BYTES, limits)


def _decode_headers(value: Any) -> Any:
    if not isinstance(value, str):
        return dict(value or ())
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise InvalidMessage(f"headers must be a JSON object: {error}.") from error


def _make_delay(value: Any) -> timedelta | None:
    if value is None or isinstance(value, timedelta):
        return value
    try:
        return timedelta(seconds=value)
    except (ValueError, OverflowError) as error:
        raise InvalidMessage(f"delay must be 0 seconds to 100 years, not {value!r}.") from error


def _decode_original(value: Any) -> int | None:
    if not isinstance(value, str):
        return value  # type: ignore[no-any-return]  # A number or None, by its type.
    try:
        return ids.decode(value)
    except ValueError as error:
        raise InvalidMessage(f"original_job: {error}") from error


def _make_reject(row: _Row, error: PublishError) -> Reject:
    shown = {
        name: value
        for name, value in row._asdict().items()
        if name not in ("payload", "is_text", CORRUPT) and value is not None
    }
    kept = row.corrupt_record.encode() if isinstance(row.corrupt_record, str) else row.payload
    size = "NULL" if kept is None else f"{len(kept)} bytes"
    text = json.dumps({"payload": size, **shown}, default=str)
    return Reject(type(error).__name__, str(error), text, kept)
