"""Publishing messages in the producer's transaction, and waking consumers after its commit."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import accumulate, chain, islice
from json.encoder import (  # type: ignore[attr-defined]  # typeshed lacks the first
    c_make_encoder,
    encode_basestring_ascii,
)
from typing import Any, Final, NamedTuple

from asgiref.sync import sync_to_async
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connections, transaction

from pulljobs import emission
from pulljobs.conf import Settings, settings
from pulljobs.engine import tracing, validation
from pulljobs.engine.encodings import tuple_maker
from pulljobs.engine.telemetry import JobsPublished, is_counting
from pulljobs.engine.validation import (
    BYTES,
    JSON,
    TEXT,
    Draft,
    NewMessage,
    Payload,
    Published,
    check_iterable,
    encodable,
)
from pulljobs.errors import DuplicateMessage, InvalidMessage, KeyFull, UnknownChannel
from pulljobs.models import Channel, Producer, Publication
from pulljobs.storage import listen, messages

__all__ = [
    "JSON",
    "Draft",
    "Payload",
    "Receipt",
    "apublish",
    "apublish_many",
    "checked",
    "encoded",
    "publish",
    "publish_checked",
    "publish_many",
]

BATCH: Final = 1000
BATCH_BYTES: Final = 8 * 1024 * 1024
"""Largest size of the payloads of one statement for several messages. PostgreSQL takes 1 GB."""
_NOTHING: Final = (None,) * 6
_NORMAL: Final = 0
_SINGLE: Final = 1
_BINARY: Final = bytes | bytearray | memoryview


def _make_json_encoder() -> Callable[[Any], str]:
    """Return a function like `encode` of Django's JSON encoder that takes less than half the time.

    `encode` makes an encoder in C for each value, and this function makes one for all. The result
    refuses NaN, and raises RecursionError for a value that contains itself.
    """
    encoder = DjangoJSONEncoder(allow_nan=False)
    if c_make_encoder is None:
        return encoder.encode
    chunks = c_make_encoder(
        None, encoder.default, encode_basestring_ascii, None, ": ", ", ", False, False, False
    )
    return lambda value: "".join(chunks(value, 0))


_json: Final = _make_json_encoder()


class Receipt(NamedTuple):
    """Result of a publish: the message and one job per consumer, in the order of consumer ids.

    For a duplicate, `message_id` is the id of the first message. For a full key, it is the id of
    the newest message that fills it. In both cases there are no jobs.
    """

    message_id: int
    job_ids: list[int]
    duplicate: bool = False
    key_full: bool = False
    replaced: tuple[int, ...] = ()
    """Ids of jobs that were queued with another message and have this message now."""


_made: Final = tuple_maker(Receipt)


def publish(
    channel: str,
    payload: Payload,
    *,
    key: str | None = None,
    priority: int = 0,
    message_id: str | None = None,
    headers: Mapping[str, str] | None = None,
    content_type: str | None = None,
    delay: timedelta | None = None,
    available_at: datetime | None = None,
    cost: int = 1,
    producer: Producer | None = None,
    using: str | None = None,
) -> Receipt:
    """Publish one message in the caller's transaction, or in one of its own.

    `payload` is bytes, text, or a value that JSON can represent. `message_id` is the client's own
    id: a second message with it inside the channel's dedupe window raises DuplicateMessage. A job
    takes `cost` tokens of the rate of its consumer. Raise UnknownChannel, InvalidMessage,
    PayloadTooLarge, KeyFull if a consumer takes no more jobs of the key, and OperationalError if
    the database does not answer for a minute. Nothing is written then.
    """
    using = using or settings().DATABASE
    more = (key, message_id, headers, content_type, delay, available_at)
    if more == _NOTHING and priority is _NORMAL and cost is _SINGLE:  # `is`: False is no priority
        message = validation.bare(*encoded(payload), settings())
    else:
        draft = Draft(
            payload=payload,
            key=key,
            priority=priority,
            message_id=message_id,
            headers=headers or {},
            content_type=content_type,
            delay=delay,
            available_at=available_at,
            cost=cost,
        )
        message = checked(draft, settings())
    return publish_checked(channel, message, producer, using)


def publish_checked(
    channel: str,
    message: NewMessage,
    producer: Producer | None,
    using: str,
    *,
    batch_id: int | None = None,
) -> Receipt:
    """Publish a message whose arguments are checked already. Raise what `publish` raises.

    With `batch_id` the jobs belong to that batch. The caller adds them to the members that the
    batch counts, in the same transaction.
    """
    [published] = _store(channel, [message], producer, using, batch_id=batch_id)
    if published.full is not None:
        raise KeyFull(str(message.key), published.full.consumer, published.full.message_id)
    name = message.client_message_id
    if name is not None and published.message_id is None:
        raise DuplicateMessage(name, _first(using, channel, [name])[name])
    _announce(using, channel, [published])
    return _receipt(published, None, {})


def publish_all_checked(
    channel: str,
    batch: list[NewMessage],
    producer: Producer | None,
    using: str,
    *,
    batch_id: int | None = None,
) -> list[Receipt]:
    """Publish checked messages in a transaction that the caller opened. Return receipts in order.

    Raise UnknownChannel. The receipts report duplicates and full keys, which do not raise. With
    `batch_id` the jobs belong to that batch, and the caller adds them to its counted members.
    """
    parts = (
        _publish_batch(channel, part, producer, using, batch_id=batch_id) for part in _split(batch)
    )
    return list(chain.from_iterable(parts))


def publish_many(
    channel: str,
    drafts: Iterable[Draft | Payload],
    *,
    producer: Producer | None = None,
    using: str | None = None,
) -> list[Receipt]:
    """Publish all messages of an iterable, or none if one is invalid. Return receipts in order.

    Items that are not a Draft are payloads. The messages are published in the caller's transaction,
    or in one of their own. The receipts report duplicates and full keys, which do not raise.
    """
    using = using or settings().DATABASE
    check_iterable(drafts)
    with transaction.atomic(using=using):
        batches = _Batches(drafts, settings())
        return list(
            chain.from_iterable(
                _publish_batch(channel, batch, producer, using, on_sent=batches.prepare)
                for batch in batches
            )
        )


async def apublish(channel: str, payload: Payload, **options: Any) -> Receipt:
    """Publish one message from async code, with the keyword arguments of `publish`.

    Django has no transactions that span awaits, so the message is in one of its own, which is
    committed when this returns. To publish together with other writes, put both in one function,
    decorate it with `transaction.atomic` and call it through `sync_to_async`.
    """
    return await sync_to_async(publish)(channel, payload, **options)


async def apublish_many(
    channel: str, drafts: Iterable[Draft | Payload], **options: Any
) -> list[Receipt]:
    """Publish all messages of an iterable from async code, with the keywords of `publish_many`.

    The messages are committed when it returns. A thread reads the iterable, which may therefore use
    the database.
    """
    return await sync_to_async(publish_many)(channel, drafts, **options)


def _publish_batch(
    channel: str,
    batch: list[NewMessage],
    producer: Producer | None,
    using: str,
    *,
    on_sent: Callable[[], None] | None = None,
    batch_id: int | None = None,
) -> Iterator[Receipt]:
    published = _store(channel, batch, producer, using, on_sent=on_sent, batch_id=batch_id)
    repeated = [
        message.client_message_id
        for message, made in zip(batch, published, strict=True)
        if made.message_id is None and made.full is None and message.client_message_id is not None
    ]
    first = _first(using, channel, repeated) if repeated else {}
    _announce(using, channel, published)
    return (
        _receipt(made, message.client_message_id, first)
        for message, made in zip(batch, published, strict=True)
    )


def _store(
    channel: str,
    batch: list[NewMessage],
    producer: Producer | None,
    using: str,
    *,
    on_sent: Callable[[], None] | None = None,
    batch_id: int | None = None,
) -> list[Published]:
    _check_name(channel)
    with tracing.publishing(channel, [message.headers for message in batch]):
        published = messages.publish(
            using,
            channel,
            batch,
            producer_id=None if producer is None else check_producer(producer),
            dedupe_window=settings().DEDUPE_WINDOW,
            batch_id=batch_id,
            on_sent=on_sent,
        )
    if published is None:
        raise UnknownChannel(channel)
    return published


def _check_name(channel: object) -> None:
    if isinstance(channel, str):
        if not encodable(channel):
            raise UnknownChannel(channel)
    elif channel is not None:
        raise InvalidMessage(f"channel must be its name, as text, not {channel!r}.")


def check_producer(producer: object) -> int:
    """Return the id of a producer's row. Raise InvalidMessage for any other object."""
    if not isinstance(producer, Producer):
        raise InvalidMessage(f"producer must be a Producer, the row itself, not {producer!r}.")
    if producer.pk is None:
        raise InvalidMessage(f"Producer {producer.name!r} is not in the database: save it first.")
    return producer.pk


def _first(using: str, channel: str, client_ids: list[str]) -> dict[str, int]:
    """Return the ids of the messages that have these client message ids, by client message id.

    The publish itself can't return them: its snapshot lacks rows for whose commit it had to wait.
    """
    publications = Publication.objects.using(using).filter(
        channel_id__in=Channel.objects.filter(name=channel).values("id"),
        client_message_id__in=client_ids,
    )
    return dict(publications.values_list("client_message_id", "message_id"))


def _announce(using: str, channel: str, published: list[Published]) -> None:
    # During the caller's transaction a consumer may begin to wait before the commit.
    commits_later = connections[using].in_atomic_block
    if waking := [
        id for stored in published if stored.awaited or commits_later for id in stored.consumer_ids
    ]:
        listen.wake_on_commit(using, waking)
    if is_counting():
        jobs = sum(len(stored.job_ids) for stored in published)
        accepted = sum(stored.message_id is not None for stored in published)
        emission.emit_on_commit(using, JobsPublished(channel, accepted, jobs))


def _receipt(published: Published, client_id: str | None, first: dict[str, int]) -> Receipt:
    if published.full is not None:
        return Receipt(published.full.message_id, [], key_full=True)
    if published.message_id is None:
        return Receipt(first[client_id or ""], [], duplicate=True)
    return _made((published.message_id, published.job_ids, False, False, published.replaced))


def ready(item: Draft | Payload, limits: Settings) -> NewMessage:
    """Return a draft or a bare payload as a message to store. Raise what `checked` raises."""
    if isinstance(item, Draft):
        return checked(item, limits)
    return validation.bare(*encoded(item), limits)


def checked(draft: Draft, limits: Settings) -> NewMessage:
    """Return a draft as a message to store, or raise InvalidMessage or PayloadTooLarge."""
    return validation.checked(draft, *encoded(draft.payload), limits)


def encoded(payload: Payload) -> tuple[bytes, str]:
    """Return a payload as bytes with its default content type, or raise InvalidMessage."""
    if isinstance(payload, _BINARY):
        return bytes(payload), BYTES
    try:
        if isinstance(payload, str):
            return payload.encode(), TEXT
        return _json(payload).encode(), JSON
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessage(
            f"The payload can't be encoded ({error}): give bytes, text or plain values."
        ) from error


class _Batches:
    """Iterable of checked batches of messages from an iterable of drafts.

    The next batch can be checked by `prepare` while the server writes the batch before it.
    """

    def __init__(self, drafts: Iterable[Draft | Payload], limits: Settings) -> None:
        self._drafts, self._limits = iter(drafts), limits
        self._taken: list[Draft | Payload] = []
        self._ready: list[list[NewMessage]] = []

    def __iter__(self) -> Iterator[list[NewMessage]]:
        self._take()
        while self._taken:
            self.prepare()
            batches, self._ready = self._ready, []
            self._take()
            yield from batches

    def prepare(self) -> None:
        """Check the drafts of the next batch, which were read from the iterable before.

        The iterable itself is not read here, because it may use the connection.
        """
        if not self._ready:
            self._ready = _split([ready(item, self._limits) for item in self._taken])

    def _take(self) -> None:
        self._taken = list(islice(self._drafts, BATCH))


def _split(ready: list[NewMessage]) -> list[list[NewMessage]]:
    """Split messages into as few batches as possible of at most BATCH_BYTES of payloads each.

    A single message may be larger.
    """
    ends = list(accumulate(len(message.payload) for message in ready))
    batches, start, sent = [], 0, 0
    while start < len(ready):
        end = max(bisect_right(ends, sent + BATCH_BYTES), start + 1)
        batches.append(ready[start:end])
        start, sent = end, ends[end - 1]
    return batches
