"""Rows of Arrow batches as Python values, and a fast check of whole columns for valid messages."""

from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pulljobs.engine.validation import (
    BYTES,
    MAX_KEY_CHARS,
    PRIORITIES,
    TEXT,
    Limits,
)
from pyspark_pulljobs.columns import COLUMNS

NO_HEADERS: Final[dict[str, str]] = {}
Columns = Mapping[str, list[Any]]
"""Lists of the messages' values, by field of NewMessage."""


class Unreadable(NamedTuple):
    """Stand-in for a value that Python cannot represent, such as a time after the year 9999."""

    error: str


class ArrowRow(NamedTuple):
    """Values of one row by column of a message. None stands for NULL and for a missing column."""

    payload: Any
    """Bytes, or the UTF-8 of a payload that was text."""
    is_text: bool
    """True if the payload was text."""
    key: Any
    priority: Any
    message_id: Any
    headers: Any
    content_type: Any
    delay: Any
    available_at: Any
    cost: Any
    original_job: Any
    corrupt_record: Any


class ArrowRows:
    """Rows of one Arrow batch, as a Python list for each column.

    Payloads that are text become their bytes in UTF-8.
    """

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
            self.unreadable |= {n for n, value in enumerate(values) if type(value) is Unreadable}
        return values

    def plain(self, first: int, end: int) -> Columns:
        """Return the rows from `first` to below `end` as columns of messages, without a check.

        The caller knows from `flag_plain_rows` that they are valid.
        """
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
            "cost": [None] * count,
        }

    def end_within(self, size: int, first: int) -> int:
        """Return the index after the row with which payloads from `first` on reach `size` bytes.

        If they have less up to the last row, the index is beyond the number of rows.
        """
        before = self.sizes[first - 1] if first else 0
        return bisect_left(self.sizes, before + size, first) + 1

    def row(self, number: int) -> ArrowRow:
        values = (column[number] for column in self.columns.values())
        return ArrowRow(self.payloads[number], self._is_text, *values)


def flag_plain_rows(batch: pa.RecordBatch, limits: Limits) -> list[bool]:
    """Return a flag for each row: True if checks of whole columns show that it is a valid message.

    False does not mean that the row is invalid. It has to be checked alone, for example because it
    has headers.
    """
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
        return Unreadable(str(error))
