"""Script that uses the client without Django: `python without_django.py URL`."""

import asyncio
import importlib.util
import sys
from typing import Any

from pulljobs.client import (
    AsyncMessage,
    AsyncProducer,
    AsyncPullConsumer,
    Consumer,
    Message,
    Producer,
    PullConsumer,
    Subscription,
)

ORDERS = Subscription("orders", "census", "orders-token", "census-of-orders-token")
SHOP: dict[str, Any] = {"channel_token": "orders-token", "producer_token": "shop-token"}


def by_hand(url: str) -> None:
    with Producer(url, "orders", "shop", **SHOP) as producer, PullConsumer(url, ORDERS) as consumer:
        producer.publish_many(["ack", "nack", "renew"])
        ack, nack, renew = sorted(consumer.fetch(3), key=lambda message: message.payload)
        ack.ack()
        nack.nack(0)
        assert 50 < renew.in_progress(60) <= 60
        renew.ack()
        again = consumer.next()
        assert again is not None
        assert again.attempts == 2
        again.ack()


async def by_hand_async(url: str) -> None:
    async with (
        AsyncProducer(url, "orders", "shop", **SHOP) as producer,
        AsyncPullConsumer(url, ORDERS) as consumer,
    ):
        await producer.publish_many(["ack", "nack", "renew"])
        messages = await consumer.fetch(3)
        ack, nack, renew = sorted(messages, key=lambda message: message.payload)
        await ack.ack()
        await nack.nack(0)
        assert 50 < await renew.in_progress(60) <= 60
        await renew.ack()
        again = await consumer.next()
        assert again is not None
        await again.ack()


def consumed(url: str) -> None:
    def handle(message: Message) -> None:
        plain.stop()

    async def handle_async(message: AsyncMessage) -> None:
        awaited.stop()

    plain = Consumer(handle, url, subscription=ORDERS)
    awaited = Consumer(handle_async, url, subscription=ORDERS)
    with Producer(url, "orders", "shop", **SHOP) as producer:
        producer.publish_many(["one", "two"])
    plain.run()
    awaited.run()


if __name__ == "__main__":
    assert importlib.util.find_spec("django") is None, "Django is here"
    by_hand(sys.argv[1])
    asyncio.run(by_hand_async(sys.argv[1]))
    consumed(sys.argv[1])
    assert "django" not in sys.modules
    print("done")
