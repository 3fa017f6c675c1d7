"""Rows of a DataFrame as messages, and what is kept of those that are none."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import repeat
from typing import Any, Final, NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from pulljobs import ids
from pulljobs.drafts import (
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
from pyspark_pulljobs.columns import COLUMNS

CHUNK_ROWS: Final = 5_000
CHUNK_BYTES: Final = 8 * 1024 * 1024
NO_HEADERS: Final[dict[str, str]] = {}


class Reject(NamedTuple):
    """A row that is no message."""

    reason: str
    error: str
    row: str
    """The other columns, in JSON."""
    payload: bytes | None


@dataclass
class Chunk:
    """Messages that are stored by one statement, and what was not fit to be."""

    messages: list[NewMessage] = field(default_factory=list)
    originals: list[int | None] = field(default_factory=list)
    """The jobs that the messages replay, one each."""
    rejects: list[Reject] = field(default_factory=list)
    size: int = 0

    @property
    def rows(self) -> int:
        return len(self.messages) + len(self.rejects)

    @property
    def is_full(self) -> bool:
        many = len(self.messages) >= CHUNK_ROWS or len(self.rejects) >= CHUNK_ROWS
        return many or self.size >= CHUNK_BYTES

    def checksum(self) -> int:
        """The same for the same rows in any order, over as many chunks as they come in."""
        return sum(
            crc32(one.payload, crc32(f"{one.key}\0{one.client_message_id}".encode()))
            for one in self.messages
        ) + sum(crc32(one.payload or b"", crc32(one.row.encode())) for one in self.rejects)


class _Unreadable(NamedTuple):
    """A value that Python has no equal of."""

    error: str


def chunks(batches: Iterable[pa.RecordBatch], limits: Limits) -> Iterator[Chunk]:
    """All rows, good and bad, in their order; none of the chunks is empty."""
    chunk = Chunk()
    for batch in batches:
        rows = _Rows(batch)
        messages, originals = rows.plain(), rows.columns["original_job"]
        for number, plain in enumerate(_plain(batch, limits)):
            if plain:
                chunk.messages.append(messages[number])
                chunk.originals.append(originals[number])
            else:
                _add(chunk, rows.row(number), limits)
            chunk.size += len(rows.payloads[number] or b"")
            if chunk.is_full:
                yield chunk
                chunk = Chunk()
    if chunk.rows:
        yield chunk


class _Row(NamedTuple):
    """Values as Arrow has them."""

    payload: Any
    text: bool
    """So the payload was."""
    key: Any
    priority: Any
    message_id: Any
    headers: Any
    content_type: Any
    delay: Any
    available_at: Any
    original_job: Any


class _Rows:
    """A batch as Python has it; text is stored as the bytes it has."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        payload = batch.column("payload")
        self._text = _is_text(payload.type)
        self._content_type = TEXT if self._text else BYTES
        self.payloads: list[bytes | None] = payload.cast(pa.large_binary()).to_pylist()
        self.columns = {
            name: _values(batch.column(name)) if name in batch.schema.names else [None] * len(batch)
            for name in COLUMNS
            if name != "payload"
        }

    def plain(self) -> list[NewMessage]:
        """What the rows would be whose other columns are empty."""
        priorities = [priority or 0 for priority in self.columns["priority"]]
        others = repeat(self._content_type), repeat(NO_HEADERS), self.columns["key"]
        made = map(NewMessage, self.payloads, *others, priorities, self.columns["message_id"])
        return list(made)

    def row(self, number: int) -> _Row:
        values = (column[number] for column in self.columns.values())
        return _Row(self.payloads[number], self._text, *values)


def _plain(batch: pa.RecordBatch, limits: Limits) -> list[bool]:
    """Of each row, whether `checked` would surely take it; by columns, for rows are many."""
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


def _values(column: pa.Array) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):  # of one value, or several
        return [_value(one) for one in column]
    return values


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError) as error:
        return _Unreadable(str(error))


def _add(chunk: Chunk, row: _Row, limits: Limits) -> None:
    try:
        message, original = _message(row, limits), _original(row.original_job)
    except PublishError as error:
        chunk.rejects.append(_reject(row, error))
    else:
        chunk.messages.append(message)
        chunk.originals.append(original)


def _message(row: _Row, limits: Limits) -> NewMessage:
    if row.payload is None:
        raise InvalidMessage("The payload is NULL: leave the row out, or publish an empty text.")
    for name, value in zip(_Row._fields, row, strict=True):
        if type(value) is _Unreadable:
            raise InvalidMessage(f"{name} can't be read: {value.error}.")
    draft = Draft(
        payload=row.payload,
        key=row.key,
        priority=0 if row.priority is None else row.priority,
        message_id=row.message_id,
        headers=dict(row.headers or ()),
        content_type=row.content_type,
        delay=_delay(row.delay),
        available_at=row.available_at,
    )
    return checked(draft, row.payload, TEXT if row.text else BYTES, limits)


def _delay(value: Any) -> timedelta | None:
    if value is None or isinstance(value, timedelta):
        return value
    try:
        return timedelta(seconds=value)
    except (ValueError, OverflowError) as error:
        raise InvalidMessage(f"delay must be 0 seconds to 100 years, not {value!r}.") from error


def _original(value: Any) -> int | None:
    if not isinstance(value, str):
        return value  # type: ignore[no-any-return]  # a number or None, by the column's type
    try:
        return ids.decode(value)
    except ValueError as error:
        raise InvalidMessage(f"original_job: {error}") from error


def _reject(row: _Row, error: PublishError) -> Reject:
    shown = {
        name: value
        for name, value in row._asdict().items()
        if name not in ("payload", "text") and value is not None
    }
    size = "NULL" if row.payload is None else f"{len(row.payload)} bytes"
    text = json.dumps({"payload": size, **shown}, default=str)
    return Reject(type(error).__name__, str(error), text, row.payload)
