"""Publishing messages and reading them."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from pulljobs.arrays import integer_array
from pulljobs.drafts import NewMessage, Published, parameters
from pulljobs.storage import bounds
from pulljobs.storage.rows import StoredMessage
from pulljobs.storage.statements import run
from pulljobs.tuples import maker

_stored: Final = maker(StoredMessage)


def publish(
    using: str,
    channel: str,
    messages: Sequence[NewMessage],
    *,
    producer_id: int | None,
    dedupe_window: timedelta,
    meanwhile: Callable[[], None] | None = None,
) -> list[Published] | None:
    """One entry a message, in order; None: there is no such channel.

    `meanwhile` may be called while the server works, without the connection.
    """
    common = {
        "channel": channel,
        "producer_id": producer_id,
        "dedupe_window": dedupe_window,
        "only_consumer_id": None,
    }
    if len(messages) == 1:
        one = {**common, **messages[0].parameters()}
        rows = run(using, "publish_one", one, always_prepare=True)
        published = [Published(row[0], row[1], row[2], awaited=row[3]) for row in rows]
    else:
        many = {**common, **parameters(messages)}
        rows = run(using, "publish", many, always_prepare=True, meanwhile=meanwhile)
        published = [Published(*row[:3]) for row in rows]
    if rows and rows[0][-1]:
        return [bounds.publish(using, {**common, **message.parameters()}) for message in messages]
    return published or None


def read(using: str, ids: Sequence[int]) -> dict[int, StoredMessage]:
    """The messages by id."""
    params = {"ids": integer_array(ids), "lowest": min(ids), "highest": max(ids)}
    return {row[0]: _stored(row[1:]) for row in run(using, "messages", params)}
