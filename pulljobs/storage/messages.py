"""Publishing messages and reading them."""

import json
from collections.abc import Sequence
from datetime import timedelta

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
        rows = run(using, "publish_one", {**common, **_one(messages[0])}, always_prepare=True)
        return [Published(*row[1:]) for row in rows] or None
    rows = run(using, "publish", {**common, **_many(messages)}, always_prepare=True)
    return [Published(*row[2:]) for row in rows] or None


def _one(message: NewMessage) -> Params:
    return {**message._asdict(), "headers": json.dumps(message.headers)}


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
        id: StoredMessage(payload, content_type, headers or {}, *rest)
        for id, payload, content_type, headers, *rest in run(using, "messages", params)
    }
