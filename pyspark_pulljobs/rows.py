"""Conversion of rows of DataFrames to messages, and of bad rows to records of their errors."""

import json
from datetime import timedelta
from typing import Any, NamedTuple

from pulljobs import ids
from pulljobs.engine.validation import BYTES, TEXT, Draft, Limits, NewMessage, checked
from pulljobs.errors import InvalidMessage, PublishError
from pyspark_pulljobs.arrow_rows import ArrowRow, Unreadable
from pyspark_pulljobs.columns import CORRUPT


class Reject(NamedTuple):
    """Row that is not a valid message, or that a full key refused, with its error."""

    reason: str
    """Name of the error's class."""
    error: str
    row: str
    """Columns of the row as JSON, with the payload replaced by its size."""
    payload: bytes | None
    """Bytes of the payload, or of the whole record if Spark's reader could not parse it."""


def make_message(row: ArrowRow, limits: Limits) -> NewMessage:
    """Return the message of a row, or raise PublishError if the row is not a valid message."""
    if row.corrupt_record is not None:
        raise InvalidMessage(
            "The row can't be read: its format or the type of a value is wrong. Correct the record."
        )
    if row.payload is None:
        raise InvalidMessage("The payload is NULL: leave out the row, or publish an empty text.")
    for name, value in zip(ArrowRow._fields, row, strict=True):
        if type(value) is Unreadable:
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
        cost=1 if row.cost is None else row.cost,
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


def decode_original(value: Any) -> int | None:
    """Return the id of the job that a row replays, from its text or number, or None for None.

    Raise InvalidMessage if the text is no id.
    """
    if not isinstance(value, str):
        return value  # type: ignore[no-any-return]  # A number or None, by its type.
    try:
        return ids.decode(value)
    except ValueError as error:
        raise InvalidMessage(f"original_job: {error}") from error


def make_reject(row: ArrowRow, error: PublishError) -> Reject:
    """Return the record of a bad row, which has this error."""
    shown = {
        name: value
        for name, value in row._asdict().items()
        if name not in ("payload", "is_text", CORRUPT) and value is not None
    }
    kept = row.corrupt_record.encode() if isinstance(row.corrupt_record, str) else row.payload
    size = "NULL" if kept is None else f"{len(kept)} bytes"
    text = json.dumps({"payload": size, **shown}, default=str)
    return Reject(type(error).__name__, str(error), text, kept)
