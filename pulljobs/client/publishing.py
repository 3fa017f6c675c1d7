"""Producers that publish over HTTP."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pulljobs.client import bodies, flows, tracing
from pulljobs.client.argument_checks import check_name, check_seconds, check_token
from pulljobs.client.bodies import Draft, Receipt
from pulljobs.client.calls import Flow
from pulljobs.client.connecting import (
    CHANNEL_TOKEN,
    PRODUCER,
    PRODUCER_TOKEN,
    Connection,
)
from pulljobs.client.errors import NotPublished
from pulljobs.client.sending import AsyncClosing, AsyncSender, Closing, Sender
from pulljobs.engine.validation import check_iterable

PATIENCE: Final = 30.0
"""Seconds for which a request is repeated: less than the usual dedupe window of channels."""
PUBLISHED: Final = ("accepted", "duplicate")


class _PublishFlows:
    """Base of Producer and AsyncProducer: checks of arguments, and sequences of requests."""

    def __init__(
        self, channel: str, producer: str, channel_token: str, producer_token: str, timeout: float
    ) -> None:
        check_name("channel", channel)
        check_name("producer", producer)
        check_token("channel", channel_token)
        check_token("producer", producer_token)
        check_seconds("timeout", timeout)
        self._channel, self._timeout = channel, timeout
        self._tokens = {
            CHANNEL_TOKEN: channel_token,
            PRODUCER: producer,
            PRODUCER_TOKEN: producer_token,
        }

    def _publish(self, drafts: Iterable[Any]) -> Flow[list[Receipt]]:
        """Publish drafts or payloads, in a tracing span. Return a receipt for each."""
        check_iterable(drafts)
        made = [draft if isinstance(draft, Draft) else Draft(payload=draft) for draft in drafts]
        headers = [bodies.headers_of(draft) for draft in made]
        with tracing.publishing(self._channel, headers):
            traced = [replace(draft, headers=own) for draft, own in zip(made, headers, strict=True)]
            return (yield from flows.publish(self._channel, traced, self._timeout))


class Producer(Closing, _PublishFlows):
    """Producer of one channel, for any number of threads. Close it, or use it in a `with` block.

    Every message has a client message id, given or new, by which the broker recognises a repeat
    after a lost answer. A request is repeated for up to `timeout` seconds. The URLs are of servers
    of one broker: after a failure the next server is used.
    """

    def __init__(
        self,
        base_url: str | Sequence[str],
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
        cost: int = 1,
        message_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> Receipt:
        """Publish bytes, text or a value for `json.dumps` and return the receipt.

        Raise NotPublished if the broker refuses the message, Refused if it refuses the request,
        InvalidMessage if the message cannot be encoded, and Unreachable without a timely answer.
        """
        draft = Draft(
            payload=payload,
            key=key,
            priority=priority,
            cost=cost,
            message_id=message_id,
            headers=headers or {},
            content_type=content_type,
        )
        return published(self.publish_many([draft])[0])

    def publish_many(self, drafts: Iterable[Any]) -> list[Receipt]:
        """Publish drafts or payloads and return a receipt for each, in their order.

        A refused message does not stop the others. If a request fails, the ClientError has the
        `receipts` of earlier requests. After InvalidMessage nothing was published.
        """
        return self._sender.run(self._publish(drafts))


class AsyncProducer(AsyncClosing, _PublishFlows):
    """Producer of one channel, for an event loop. `Producer` explains the arguments."""

    def __init__(
        self,
        base_url: str | Sequence[str],
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
        cost: int = 1,
        message_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> Receipt:
        """Publish bytes, text or a value for `json.dumps` and return the receipt.

        Raise NotPublished if the broker refuses the message, Refused if it refuses the request,
        InvalidMessage if the message cannot be encoded, and Unreachable without a timely answer.
        """
        draft = Draft(
            payload=payload,
            key=key,
            priority=priority,
            cost=cost,
            message_id=message_id,
            headers=headers or {},
            content_type=content_type,
        )
        return published((await self.publish_many([draft]))[0])

    async def publish_many(self, drafts: Iterable[Any]) -> list[Receipt]:
        """Publish drafts or payloads and return a receipt for each, as `Producer.publish_many`."""
        return await self._sender.run(self._publish(drafts))


def published(receipt: Receipt) -> Receipt:
    """Return the receipt if it is accepted or duplicate, or else raise NotPublished."""
    if receipt.status not in PUBLISHED:
        sentence = receipt.error or "The key is full: publish again when one of its jobs is done."
        raise NotPublished(receipt.status, sentence)
    return receipt
