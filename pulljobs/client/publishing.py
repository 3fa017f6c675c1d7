"""Publishing over HTTP."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from pulljobs.client import flows, tracing
from pulljobs.client.bodies import Draft, Receipt
from pulljobs.client.calls import Flow
from pulljobs.client.connecting import (
    CHANNEL_TOKEN,
    PRODUCER,
    PRODUCER_TOKEN,
    Connection,
    check_token,
)
from pulljobs.client.errors import NotPublished
from pulljobs.client.sending import AsyncClosing, AsyncSender, Closing, Sender

PATIENCE: Final = 30.0
"""Seconds for which a request is tried: less than a channel remembers ids."""
PUBLISHED: Final = ("accepted", "duplicate")


class _Desk:
    """What both sides make of their arguments."""

    def __init__(
        self, channel: str, producer: str, channel_token: str, producer_token: str, timeout: float
    ) -> None:
        check_token("channel", channel_token)
        check_token("producer", producer_token)
        self._channel, self._timeout = channel, timeout
        self._tokens = {
            CHANNEL_TOKEN: channel_token,
            PRODUCER: producer,
            PRODUCER_TOKEN: producer_token,
        }

    def _publish(self, drafts: Iterable[Any]) -> Flow[list[Receipt]]:
        """Under a span that lasts until all is told, whoever drives the flow."""
        made = [one if isinstance(one, Draft) else Draft(payload=one) for one in drafts]
        headers = [dict(one.headers) for one in made]
        with tracing.publishing(self._channel, headers):
            carrying = [replace(one, headers=own) for one, own in zip(made, headers, strict=True)]
            return (yield from flows.publish(self._channel, carrying, self._timeout))


class Producer(Closing, _Desk):
    """Publishes on one channel. Thread-safe; close it, or use it as a context.

    Every message has an id, its own or a new one, so that a repeat after a lost answer is known to
    the broker: `timeout` seconds are the time for repeats of a request.
    """

    def __init__(
        self,
        base_url: str,
        channel: str,
        producer: str,
        *,
        channel_token: str,
        producer_token: str,
        timeout: float = PATIENCE,
        connection: Connection | None = None,
    ) -> None:
        super().__init__(channel, producer, channel_token, producer_token, timeout)
        self._sender = Sender(base_url, self._tokens, connection or Connection())

    def publish(
        self,
        payload: Any,
        *,
        key: str | None = None,
        priority: int = 0,
        message_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> Receipt:
        """Bytes, text, or what `json.dumps` takes; NotPublished if the broker won't have it."""
        draft = Draft(
            payload=payload,
            key=key,
            priority=priority,
            message_id=message_id,
            headers=headers or {},
            content_type=content_type,
        )
        return published(self.publish_many([draft])[0])

    def publish_many(self, drafts: Iterable[Any]) -> list[Receipt]:
        """Drafts, or payloads alone; a receipt each: what is refused does not stop the others.

        A ClientError carries the `receipts` so far. InvalidMessage: nothing was published.
        """
        return self._sender.run(self._publish(drafts))


class AsyncProducer(AsyncClosing, _Desk):
    """The same, asynchronous; for one event loop."""

    def __init__(
        self,
        base_url: str,
        channel: str,
        producer: str,
        *,
        channel_token: str,
        producer_token: str,
        timeout: float = PATIENCE,
        connection: Connection | None = None,
    ) -> None:
        super().__init__(channel, producer, channel_token, producer_token, timeout)
        self._sender = AsyncSender(base_url, self._tokens, connection or Connection())

    async def publish(
        self,
        payload: Any,
        *,
        key: str | None = None,
        priority: int = 0,
        message_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> Receipt:
        draft = Draft(
            payload=payload,
            key=key,
            priority=priority,
            message_id=message_id,
            headers=headers or {},
            content_type=content_type,
        )
        return published((await self.publish_many([draft]))[0])

    async def publish_many(self, drafts: Iterable[Any]) -> list[Receipt]:
        return await self._sender.run(self._publish(drafts))


def published(receipt: Receipt) -> Receipt:
    """NotPublished for one that was not."""
    if receipt.status not in PUBLISHED:
        sentence = receipt.error or "The key is full: publish again when one of its jobs is done."
        raise NotPublished(receipt.status, sentence)
    return receipt
