"""Publishing: what happens inside the producer's transaction, and after its commit."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import accumulate, chain, islice
from typing import Any, Final, NamedTuple

from asgiref.sync import sync_to_async
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connections, transaction

from pulljobs import emission
from pulljobs.conf import Settings, settings
from pulljobs.engine import tracing, validation
from pulljobs.engine.telemetry import JobsPublished, is_counting
from pulljobs.engine.validation import (
    BYTES,
    JSON,
    TEXT,
    Draft,
    NewMessage,
    Payload,
    Published,
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
"""Of the payloads of a batch, unless it is of one: no statement can have a gigabyte."""
_NOTHING: Final = (None,) * 6
_NORMAL: Final = 0
_json: Final = DjangoJSONEncoder(allow_nan=False).encode


class Receipt(NamedTuple):
    """What was made of a message: one job a consumer, in the order of the consumers' rows.

    Of a duplicate `message_id` is the id of the first one, where the key is full that of the newest
    one that fills it; then there are no jobs.
    """

    message_id: int
    job_ids: list[int]
    duplicate: bool = False
    key_full: bool = False
    replaced: tuple[int, ...] = ()
    """Those of the jobs that waited already, with another message, and have this one now."""


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
    producer: Producer | None = None,
    using: str | None = None,
) -> Receipt:
    """Publish one message in the caller's transaction, or in one of its own.

    `message_id` is the client's own id: a second message with it inside the channel's dedupe window
    raises DuplicateMessage. Raises UnknownChannel, InvalidMessage, PayloadTooLarge or, where a
    consumer bounds the jobs of the key, KeyFull; nothing is written then.
    """
    using = using or settings().DATABASE
    more = (key, message_id, headers, content_type, delay, available_at)
    if more == _NOTHING and priority is _NORMAL:  # False is neither that nor any other
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
        )
        message = checked(draft, settings())
    return publish_checked(channel, message, producer, using)


def publish_checked(
    channel: str, message: NewMessage, producer: Producer | None, using: str
) -> Receipt:
    """The rest of `publish`, and all of it for a message that was accepted before."""
    [published] = _store(channel, [message], producer, using)
    if published.full is not None:
        raise KeyFull(str(message.key), published.full.consumer, published.full.message_id)
    name = message.client_message_id
    if name is not None and published.message_id is None:
        raise DuplicateMessage(name, _first(using, channel, [name])[name])
    _tell(using, channel, [published])
    return _receipt(published, None, {})


def publish_many(
    channel: str,
    drafts: Iterable[Draft | Payload],
    *,
    producer: Producer | None = None,
    using: str | None = None,
) -> list[Receipt]:
    """Publish an iterable, all of it or, if one is bad, nothing; a receipt each, in order.

    Whatever is not a Draft is taken for a payload. Duplicates and full keys are told by their
    receipts, not raised.
    """
    using = using or settings().DATABASE
    if isinstance(drafts, str | bytes | bytearray | memoryview | Mapping):
        raise InvalidMessage(
            f"publish_many takes an iterable of payloads, and a {type(drafts).__name__} is one "
            "payload: put it in a list, or call publish."
        )
    with transaction.atomic(using=using):
        batches = _Batches(drafts, settings())
        return list(
            chain.from_iterable(
                _publish_batch(channel, batch, producer, using, batches.prepare)
                for batch in batches
            )
        )


async def apublish(channel: str, payload: Payload, **options: Any) -> Receipt:
    """`publish` for async code, with the same options.

    Django has no transactions that span awaits, so this joins none: the message is committed when
    it returns. To publish together with other writes, put both in one function, decorate it with
    `transaction.atomic` and call it through `sync_to_async`.
    """
    return await sync_to_async(publish)(channel, payload, **options)


async def apublish_many(
    channel: str, drafts: Iterable[Draft | Payload], **options: Any
) -> list[Receipt]:
    """`publish_many` for async code, with the same options; committed when it returns.

    The iterable is read in a thread, while the event loop goes on: it may use the database.
    """
    return await sync_to_async(publish_many)(channel, drafts, **options)


def _publish_batch(
    channel: str,
    batch: list[NewMessage],
    producer: Producer | None,
    using: str,
    meanwhile: Callable[[], None],
) -> Iterator[Receipt]:
    published = _store(channel, batch, producer, using, meanwhile)
    repeated = [
        message.client_message_id
        for message, made in zip(batch, published, strict=True)
        if made.message_id is None and made.full is None and message.client_message_id is not None
    ]
    first = _first(using, channel, repeated) if repeated else {}
    _tell(using, channel, published)
    return (
        _receipt(made, message.client_message_id, first)
        for message, made in zip(batch, published, strict=True)
    )


def _store(
    channel: str,
    batch: list[NewMessage],
    producer: Producer | None,
    using: str,
    meanwhile: Callable[[], None] | None = None,
) -> list[Published]:
    _check_name(channel)
    with tracing.publishing(channel, [one.headers for one in batch]):
        published = messages.publish(
            using,
            channel,
            batch,
            producer_id=None if producer is None else _id_of(producer),
            dedupe_window=settings().DEDUPE_WINDOW,
            meanwhile=meanwhile,
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


def _id_of(producer: object) -> int:
    if not isinstance(producer, Producer):
        raise InvalidMessage(f"producer must be a Producer, the row itself, not {producer!r}.")
    return producer.pk


def _first(using: str, channel: str, client_ids: list[str]) -> dict[str, int]:
    """The messages that bear these client ids; a statement of its own sees what it waited for."""
    publications = Publication.objects.using(using).filter(
        channel_id__in=Channel.objects.filter(name=channel).values("id"),
        client_message_id__in=client_ids,
    )
    return dict(publications.values_list("client_message_id", "message_id"))


def _tell(using: str, channel: str, published: list[Published]) -> None:
    # In the caller's transaction somebody may come to wait before its commit.
    is_told_late = connections[using].in_atomic_block
    if waking := [
        id for one in published if one.awaited or is_told_late for id in one.consumer_ids
    ]:
        listen.wake_on_commit(using, waking)
    if is_counting():
        jobs = sum(len(one.job_ids) for one in published)
        accepted = sum(one.message_id is not None for one in published)
        emission.emit_on_commit(using, JobsPublished(channel, accepted, jobs))


def _receipt(published: Published, client_id: str | None, first: dict[str, int]) -> Receipt:
    if published.full is not None:
        return Receipt(published.full.message_id, [], key_full=True)
    if published.message_id is None:
        return Receipt(first[client_id or ""], [], duplicate=True)
    return Receipt(published.message_id, published.job_ids, False, False, published.replaced)


def _ready(one: Draft | Payload, limits: Settings) -> NewMessage:
    if isinstance(one, Draft):
        return checked(one, limits)
    return validation.bare(*encoded(one), limits)


def checked(draft: Draft, limits: Settings) -> NewMessage:
    """The message to store; raise for whatever is out of its bounds."""
    return validation.checked(draft, *encoded(draft.payload), limits)


def encoded(payload: Payload) -> tuple[bytes, str]:
    """What is stored of a payload, and its content type unless the publisher names another."""
    if isinstance(payload, bytes | bytearray | memoryview):
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
    """Drafts in batches, as messages: those of the next can be made while one is written."""

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
        """The next ones; only what was taken, for the caller's iterable may use the database."""
        if not self._ready:
            self._ready = _split([_ready(one, self._limits) for one in self._taken])

    def _take(self) -> None:
        self._taken = list(islice(self._drafts, BATCH))


def _split(ready: list[NewMessage]) -> list[list[NewMessage]]:
    """Into as few batches as can be."""
    ends = list(accumulate(len(message.payload) for message in ready))
    batches, start, sent = [], 0, 0
    while start < len(ready):
        end = max(bisect_right(ends, sent + BATCH_BYTES), start + 1)
        batches.append(ready[start:end])
        start, sent = end, ends[end - 1]
    return batches
