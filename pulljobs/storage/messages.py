"""Publishing messages and reading them."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pulljobs.storage import bounds
from pulljobs.storage.arrays import array, byte_array
from pulljobs.storage.rows import NewMessage, Published, StoredMessage
from pulljobs.storage.statements import Params, run


def publish(
    using: str,
    channel: str,
    messages: Sequence[NewMessage],
    *,
    producer_id: int | None,
    dedupe_window: timedelta,
) -> list[Published] | None:
    """One entry a message, in order; None: there is no such channel."""
    common = {"channel": channel, "producer_id": producer_id, "dedupe_window": dedupe_window}
    if len(messages) == 1:
        one = {**common, **_one(messages[0])}
        rows = run(using, "publish_one", one, always_prepare=True)
    else:
        many = {**common, **_many(messages)}
        rows = run(using, "publish", many, always_prepare=True)
    if rows and rows[0][-1]:
        return [bounds.publish(using, {**common, **_one(message)}) for message in messages]
    return [Published(*row[:3]) for row in rows] or None


def _one(message: NewMessage) -> dict[str, Any]:
    return {**message._asdict(), "headers": json.dumps(message.headers), "replacing": None}


def _many(messages: Sequence[NewMessage]) -> Params:
    payloads, content_types, headers, keys, priorities, client_ids, delays, ats = zip(
        *messages, strict=True
    )
    return {
        "payloads": byte_array(payloads),
        "content_types": array(content_types),
        "headers": array(map(json.dumps, headers)),
        "keys": array(keys),
        "priorities": array(priorities),
        "client_message_ids": array(client_ids),
        "delays": array(delays),
        "available_ats": array(ats),
    }


def read(using: str, ids: Sequence[int]) -> dict[int, StoredMessage]:
    """The messages by id."""
    params = {"ids": array(ids), "lowest": min(ids), "highest": max(ids)}
    return {
        id: StoredMessage(payload, content_type, headers or {}, published_at, client_id, key)
        for id, payload, content_type, headers, published_at, client_id, key in run(
            using, "messages", params
        )
    }
