"""Access to published messages."""

import json
from typing import Any, Final, NamedTuple

from pulljobs.conf import settings
from pulljobs.models import Message
from pulljobs.publishing import JSON, encoded

ANY: Final = object()
SHOWN: Final = 200


class PublishedMessage(NamedTuple):
    """Message as it was stored."""

    id: int
    payload: bytes
    content_type: str
    headers: dict[str, str]
    key: str | None
    priority: int
    message_id: str | None
    """Message id that the producer chose."""

    def json(self) -> Any:
        """Decode the payload as JSON; raise ValueError if it is not JSON."""
        return json.loads(self.payload)


def published(channel: str) -> list[PublishedMessage]:
    """Return the messages on a channel, in the order of their ids."""
    rows = Message.objects.using(settings().DATABASE).filter(channel__name=channel).order_by("id")
    return [
        PublishedMessage(
            row.pk,
            bytes(row.payload),
            row.content_type,
            row.headers,
            row.key,
            row.priority,
            row.client_message_id,
        )
        for row in rows
    ]


def assert_published(
    channel: str, payload: Any = ANY, *, count: int | None = None, **attributes: Any
) -> list[PublishedMessage]:
    """Assert that `count` such messages were published, by default at least one; return them.

    Bytes and text are compared literally, other payloads as JSON. `attributes` are fields of
    PublishedMessage, such as key, priority, headers or message_id. Raise AssertionError with the
    messages on the channel if the number differs.
    """
    every = published(channel)
    matching = [message for message in every if _is_like(message, payload, attributes)]
    if len(matching) == count or (matching and count is None):
        return matching
    wanted = [f"{name}={value!r}" for name, value in attributes.items()]
    if payload is not ANY:
        wanted.insert(0, f"payload={payload!r}")
    listed = "".join(f"\n  {message.payload[:SHOWN]!r} key={message.key!r}" for message in every)
    actual = f"{len(matching)} of {len(every)} match:{listed}" if every else "there are none."
    raise AssertionError(
        f"Expected {'at least one' if count is None else count} on {channel!r} with "
        f"{', '.join(wanted) or 'anything'}; {actual}"
    )


def _is_like(message: PublishedMessage, payload: Any, attributes: dict[str, Any]) -> bool:
    if any(getattr(message, name) != value for name, value in attributes.items()):
        return False
    return payload is ANY or _is_payload(message, payload)


def _is_payload(message: PublishedMessage, payload: Any) -> bool:
    """Compare bytes and text literally, other payloads as JSON."""
    wanted, content_type = encoded(payload)
    if content_type != JSON:
        return message.payload == wanted
    try:
        return bool(message.json() == json.loads(wanted))
    except ValueError:
        return False
