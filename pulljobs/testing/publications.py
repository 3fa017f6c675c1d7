"""Looking at what was published."""

import json
from typing import Any, Final, NamedTuple

from pulljobs.conf import settings
from pulljobs.models import Message
from pulljobs.publishing import JSON, encoded

ANY: Final = object()
SHOWN: Final = 200


class PublishedMessage(NamedTuple):
    """One message, as it was stored."""

    id: int
    payload: bytes
    content_type: str
    headers: dict[str, str]
    key: str | None
    priority: int
    message_id: str | None
    """The client's own id."""

    def json(self) -> Any:
        return json.loads(self.payload)


def published(channel: str) -> list[PublishedMessage]:
    """What was published on a channel, in order."""
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
    """Assert that so many such messages were published, without `count` at least one; they follow.

    `attributes` are fields of PublishedMessage, such as key, priority, headers or message_id.
    """
    every = published(channel)
    found = [one for one in every if _is_like(one, payload, attributes)]
    if len(found) == count or (found and count is None):
        return found
    wanted = [f"{name}={value!r}" for name, value in attributes.items()]
    if payload is not ANY:
        wanted.insert(0, f"payload={payload!r}")
    listed = "".join(f"\n  {one.payload[:SHOWN]!r} key={one.key!r}" for one in every)
    told = f"{len(found)} of {len(every)} are so:{listed}" if every else "there are none."
    raise AssertionError(
        f"Expected {'at least one' if count is None else count} on {channel!r} with "
        f"{', '.join(wanted) or 'anything'}; {told}"
    )


def _is_like(one: PublishedMessage, payload: Any, attributes: dict[str, Any]) -> bool:
    if any(getattr(one, name) != value for name, value in attributes.items()):
        return False
    return payload is ANY or _is_payload(one, payload)


def _is_payload(one: PublishedMessage, payload: Any) -> bool:
    """Bytes and text as they are, anything else as JSON, whatever its spaces and order."""
    wanted, content_type = encoded(payload)
    if content_type != JSON:
        return one.payload == wanted
    try:
        return bool(one.json() == json.loads(wanted))
    except ValueError:
        return False
