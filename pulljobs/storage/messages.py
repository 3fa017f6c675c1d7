"""Writing of messages with their jobs, and reading of messages."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import repeat
from operator import attrgetter

from pulljobs.engine.encodings import integer_array
from pulljobs.engine.sql import Params
from pulljobs.engine.validation import NewMessage, Published, parameters
from pulljobs.storage import bounds
from pulljobs.storage.rows import StoredMessage
from pulljobs.storage.statements import run


def publish(
    using: str,
    channel: str,
    messages: Sequence[NewMessage],
    *,
    producer_id: int | None,
    dedupe_window: timedelta,
    batch_id: int | None = None,
    on_sent: Callable[[], None] | None = None,
) -> list[Published] | None:
    """Write messages with their jobs, and return a result for each, in order.

    Return None for an unknown channel. For several messages, `on_sent` is called once the server
    has their statement: it works while the server does, and must not use the connection.
    """
    is_plain = batch_id is None and all(message.is_plain for message in messages)
    if is_plain and len(messages) == 1:
        return _publish_plain(using, channel, messages[0], producer_id)
    common = {
        "channel": channel,
        "producer_id": producer_id,
        "dedupe_window": dedupe_window,
        "only_consumer_id": None,
        "batch_id": batch_id,
    }
    if is_plain:
        return _publish_batch(using, {**common, **parameters(messages)}, on_sent)
    if len(messages) == 1:
        single = {**common, **messages[0].parameters()}
        rows = run(using, "publish_one", single, always_prepare=True)
        published = [
            Published(row.message_id, row.job_ids, row.consumer_ids, awaited=row.awaited)
            for row in rows
        ]
    else:
        many = {**common, **parameters(messages)}
        rows = run(using, "publish", many, always_prepare=True, on_sent=on_sent)
        published = [Published(row.message_id, row.job_ids, row.consumer_ids) for row in rows]
    if rows and rows[0].bounded:
        return bounds.publish(using, [{**common, **message.parameters()} for message in messages])
    return published or None


def _publish_plain(
    using: str, channel: str, message: NewMessage, producer_id: int | None
) -> list[Published] | None:
    params = {**message.plain_parameters(), "channel": channel, "producer_id": producer_id}
    rows = run(using, "publish_plain", params, always_prepare=True)
    if not rows:
        return None
    jobs = sorted((row for row in rows if row.job_id is not None), key=attrgetter("consumer_id"))
    return [
        Published(
            rows[0].message_id,
            [row.job_id for row in jobs],
            [row.consumer_id for row in jobs],
            awaited=any(row.awaited for row in jobs),
        )
    ]


def _publish_batch(
    using: str, params: Params, on_sent: Callable[[], None] | None
) -> list[Published] | None:
    rows = run(using, "publish_batch", params, always_prepare=True, on_sent=on_sent)
    if not rows:
        return None
    [row] = rows
    if row.consumer_ids is None:
        return [Published(id, [], []) for id in row.message_ids]
    jobs_of_each = map(list, zip(*[iter(row.job_ids)] * len(row.consumer_ids), strict=True))
    return list(map(Published, row.message_ids, jobs_of_each, repeat(row.consumer_ids)))


def read_messages(using: str, ids: Sequence[int]) -> dict[int, StoredMessage]:
    """Return the messages with these ids, by id. Deleted ones are left out."""
    params = {"ids": integer_array(ids), "lowest": min(ids), "highest": max(ids)}
    return {row.id: row for row in run(using, "messages", params, kind=StoredMessage)}
