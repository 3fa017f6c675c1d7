"""Callbacks of a batch: which of its messages the end of the batch publishes."""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from pulljobs import ids, publishing
from pulljobs.conf import settings
from pulljobs.engine.sql import Row
from pulljobs.engine.validation import Draft, NewMessage, Payload, encodable
from pulljobs.errors import InvalidMessage
from pulljobs.publishing import Receipt

BATCH_HEADER: Final = "Pulljobs-Batch"
HEADERS: Final = 7
"""Number of headers that a callback gets in addition to its own."""


class Ending(StrEnum):
    """Kind of end of a round, for each of which a batch can have a callback."""

    COMPLETE = "complete"
    """Every member has ended."""
    SUCCESS = "success"
    """Every member was delivered."""
    DEAD = "dead"
    """Every member has ended, and some are dead."""


@dataclass(frozen=True, slots=True)
class Callback:
    """Message that the end of a batch publishes. The fields are arguments of `publish`."""

    channel: str
    payload: Payload = None
    key: str | None = None
    priority: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str | None = None
    cost: int = 1


AnyCallback = Callback | tuple[str, Any] | None
"""Callback, or a channel with a payload or a Draft."""


def store(callbacks: Mapping[Ending, AnyCallback]) -> list[dict[str, Any]]:
    """Check callbacks, and return them in the form in which the row of a batch stores them.

    Raise InvalidMessage or PayloadTooLarge. The channel may be created later.
    """
    return [
        _store(ending, _normalize(callback))
        for ending, callback in callbacks.items()
        if callback is not None
    ]


def publish(using: str, batch: Row) -> None:
    """Publish those callbacks of a batch that its end calls for, in the caller's transaction.

    `batch` is a row of decide_batch.sql. Raise what `publish` raises.
    """
    endings = {Ending.COMPLETE, Ending.DEAD if batch.dead else Ending.SUCCESS}
    for stored in batch.callbacks:
        if (ending := Ending(stored["event"])) in endings:
            _publish(using, stored, _headers(batch, ending))


def _normalize(callback: AnyCallback) -> Callback:
    if isinstance(callback, Callback):
        return callback
    if not isinstance(callback, tuple) or len(callback) != 2:
        raise InvalidMessage(
            f"A callback is a Callback, or a tuple of a channel and a payload, not {callback!r}."
        )
    channel, content = callback
    if not isinstance(content, Draft):
        return Callback(channel, content)
    if content.message_id or content.delay or content.available_at:
        raise InvalidMessage(
            "A callback is published once when the batch ends: leave out message_id, delay and "
            "available_at."
        )
    return Callback(
        channel,
        content.payload,
        content.key,
        content.priority,
        content.headers,
        content.content_type,
        content.cost,
    )


def _store(ending: Ending, callback: Callback) -> dict[str, Any]:
    name = callback.channel
    if not isinstance(name, str) or not name or not encodable(name):
        raise InvalidMessage(f"The channel of a callback must be its name, not {name!r}.")
    draft = Draft(
        payload=callback.payload,
        key=callback.key,
        priority=callback.priority,
        headers=callback.headers,
        content_type=callback.content_type,
        cost=callback.cost,
    )
    message = publishing.checked(draft, settings())
    if len(message.headers) + HEADERS > settings().MAX_HEADERS:
        raise InvalidMessage(
            f"{len(message.headers)} headers of a callback are too many: it gets {HEADERS} more, "
            f"and the limit is {settings().MAX_HEADERS}."
        )
    return {
        "event": ending.value,
        "channel": callback.channel,
        "payload": base64.b64encode(message.payload).decode(),
        "content_type": message.content_type,
        "headers": message.headers,
        "key": message.key,
        "priority": message.priority,
        "cost": message.cost,
    }


def _publish(using: str, stored: Mapping[str, Any], headers: Mapping[str, str]) -> Receipt:
    message = NewMessage(
        base64.b64decode(stored["payload"]),
        stored["content_type"],
        {**stored["headers"], **headers},
        stored["key"],
        stored["priority"],
        cost=stored.get("cost"),
    )
    return publishing.publish_checked(stored["channel"], message, None, using)


def _headers(batch: Row, ending: Ending) -> dict[str, str]:
    return dict(_list_headers(batch, ending))


def _list_headers(batch: Row, ending: Ending) -> Iterator[tuple[str, str]]:
    yield BATCH_HEADER, ids.encode(batch.id)
    yield f"{BATCH_HEADER}-Name", batch.name
    yield f"{BATCH_HEADER}-Event", ending.value
    yield f"{BATCH_HEADER}-Round", str(batch.round)
    yield f"{BATCH_HEADER}-Members", str(batch.members)
    yield f"{BATCH_HEADER}-Delivered", str(batch.delivered)
    yield f"{BATCH_HEADER}-Dead", str(batch.dead)
