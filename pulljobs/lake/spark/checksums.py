"""Checksum of a row of the lake, equal to that of `sql/checksum_*.sql` for the row in PostgreSQL.

Spark's tasks compute it for many rows and its driver for few, from the same lists of columns.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from hashlib import md5
from typing import Any, Final, NamedTuple

import pyarrow as pa


class Form(NamedTuple):
    """Text form of a column's values in a checksum, as Spark's SQL and as a Python function."""

    sql: str
    """Expression with `{}` in place of the column."""
    text: Callable[[Any], str]


def _hash(value: str | bytes) -> str:
    content = value.encode() if isinstance(value, str) else value
    return md5(content, usedforsecurity=False).hexdigest()


PLAIN: Final = Form("{}", str)
MICROSECONDS: Final = Form("unix_micros({})", str)
NANOSECONDS: Final = Form("floor({} * 1e9D)", lambda seconds: str(math.floor(seconds * 1e9)))
HASHED: Final = Form("md5({})", _hash)

COLUMNS: Final[Mapping[str, Mapping[str, Form]]] = {
    "archive": {
        "id": PLAIN,
        "job_id": PLAIN,
        "message_id": PLAIN,
        "consumer_id": PLAIN,
        "state": PLAIN,
        "reason": PLAIN,
        "created_at": MICROSECONDS,
        "claimed_at": MICROSECONDS,
        "started_at": MICROSECONDS,
        "settled_at": MICROSECONDS,
        "run_seconds": NANOSECONDS,
        "retry_count": PLAIN,
        "deliveries": PLAIN,
        "node_id": PLAIN,
        "lease_token": PLAIN,
        "error": HASHED,
        "result": HASHED,
    },
    "messages": {
        "id": PLAIN,
        "channel_id": PLAIN,
        "producer_id": PLAIN,
        "published_at": MICROSECONDS,
        "priority": PLAIN,
        "key": HASHED,
        "client_message_id": HASHED,
        "content_type": HASHED,
        "headers": HASHED,
        "payload_bytes": PLAIN,
    },
}
PAYLOAD: Final = ("payload", "payload_bytes", "payload_md5")
PAYLOAD_IS_WHOLE: Final = (
    "payload IS NULL OR (octet_length(payload) = payload_bytes AND md5(payload) = payload_md5)"
)


def expression(table: str) -> str:
    """Return the Spark SQL expression of the checksum of a row of this table, a decimal."""
    parts = ", ".join(
        f"coalesce(cast({form.sql.format(name)} AS string), '')"
        for name, form in COLUMNS[table].items()
    )
    return f"cast(conv(substr(md5(concat_ws('|', {parts})), 1, 15), 16, 10) AS decimal(38, 0))"


def compute(table: str, rows: pa.RecordBatch) -> list[int]:
    """Return the checksum of each row, in the order of the rows."""
    texts = [_list_texts(rows[name], form) for name, form in COLUMNS[table].items()]
    return [int(_hash("|".join(parts))[:15], 16) for parts in zip(*texts, strict=True)]


def count_broken_payloads(rows: pa.RecordBatch) -> int:
    """Return the number of payloads whose size or MD5 is not the one in their row."""
    columns = (rows[name].to_pylist() for name in PAYLOAD)
    return sum(
        payload is not None and (len(payload), _hash(payload)) != (size, expected)
        for payload, size, expected in zip(*columns, strict=True)
    )


def _list_texts(values: pa.Array, form: Form) -> Sequence[str]:
    if form is MICROSECONDS:
        values = values.cast(pa.int64())
    return ["" if value is None else form.text(value) for value in values.to_pylist()]
