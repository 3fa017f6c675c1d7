"""Messages that a test has published, and an assertion about them."""

import json
from typing import Any, Final, NamedTuple

from pulljobs.conf import settings
from pulljobs.models import Message
from pulljobs.publishing import JSON, encoded
from pulljobs.testing.arguments import check_count, check_text

ANY: Final = object()
"""Stand-in for any payload."""
SHOWN: Final = 200
"""Number of bytes of a payload in an error message."""


class PublishedMessage(NamedTuple):
    """Published message, as it is stored."""

    id: int
    payload: bytes
    content_type: str
    headers: dict[str, str]
    key: str | None
    priority: int
    message_id: str | None
    """Client message id, or None if the publisher gave none."""

    def json(self) -> Any:
        """Return the payload parsed as JSON, or raise ValueError if it is not JSON."""
        return json.loads(self.payload)


def published(channel: str) -> list[PublishedMessage]:
    """Return the messages that were published on a channel, in the order of their ids."""
    check_text("channel", channel)
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
    """Assert that messages like this were published on a channel, and return them.

    With `count` there must be exactly so many, otherwise at least one. A payload of bytes or text
    must be equal. Any other payload is compared as JSON. `attributes` are fields of
    PublishedMessage, such as key, priority, headers or message_id. The messages are in the order of
    their ids. The AssertionError lists all messages of the channel.
    """
    if count is not None:
        check_count("count", count)
    if unknown := attributes.keys() - set(PublishedMessage._fields):
        raise TypeError(
            f"A message has no {', '.join(sorted(unknown))}: its fields are "
            f"{', '.join(PublishedMessage._fields)}."
        )
    messages = published(channel)
    matching = [message for message in messages if _matches(message, payload, attributes)]
    if len(matching) == count or (matching and count is None):
        return matching
    wanted = [f"{name}={value!r}" for name, value in attributes.items()]
    if payload is not ANY:
        wanted.insert(0, f"payload={payload!r}")
    listed = "".join(f"\n  {each.payload[:SHOWN]!r} key={each.key!r}" for each in messages)
    actual = (
        f"{len(matching)} of {len(messages)} match:{listed}"
        if messages
        else "there are no messages."
    )
    raise AssertionError(
        f"Expected {'at least one' if count is None else count} on {channel!r} with "
        f"{', '.join(wanted) or 'anything'}; {actual}"
    )


def _matches(message: PublishedMessage, payload: Any, attributes: dict[str, Any]) -> bool:
    if any(getattr(message, name) != value for name, value in attributes.items()):
        return False
    return payload is ANY or _has_payload(message, payload)


def _has_payload(message: PublishedMessage, payload: Any) -> bool:
    """Return True if the payloads are equal: as bytes or text, or else as parsed JSON."""
    wanted, content_type = encoded(payload)
    if content_type != JSON:
        return message.payload == wanted
    try:
        return bool(message.json() == json.loads(wanted))
    except ValueError:
        return False
