"""Publishing messages and reading them."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from psycopg.types.json import Jsonb

from pulljobs.storage.arrays import array
from pulljobs.storage.rows import NewMessage, Published, StoredMessage
from pulljobs.storage.statements import run

_COLUMNS = (
    "payloads",
    "content_types",
    "headers",
    "keys",
    "priorities",
    "client_message_ids",
    "delays",
    "available_ats",
)


def publish(
    using: str,
    channel: str,
    messages: Sequence[NewMessage],
    *,
    producer_id: int | None,
    dedupe_window: timedelta,
) -> list[Published] | None:
    """One entry a message, in order; None: there is no such channel."""
    columns: list[list[Any]] = [list(column) for column in zip(*messages, strict=True)]
    params = dict(zip(_COLUMNS, columns, strict=True))
    params["headers"] = [Jsonb(headers) for headers in params["headers"]]
    rows = run(
        using,
        "publish",
        {"channel": channel, "producer_id": producer_id, "dedupe_window": dedupe_window, **params},
        always_prepare=True,
    )
    return [Published(*row[2:]) for row in rows] if rows else None


def read(using: str, ids: Sequence[int]) -> dict[int, StoredMessage]:
    """The messages by id."""
    params = {"ids": array(ids), "lowest": min(ids), "highest": max(ids)}
    return {
        id: StoredMessage(payload, content_type, headers or {}, published_at, client_message_id)
        for id, payload, content_type, headers, published_at, client_message_id in run(
            using, "messages", params
        )
    }
