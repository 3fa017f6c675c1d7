"""A worker of the tests: `python -m tests.client.worker URL plain|async`."""

import asyncio
import sys
import time
from typing import Any

from pulljobs.client import Consumer, Message
from tests.client.names import SUBSCRIPTION

SECONDS = 0.02


def handle(message: Message) -> None:
    time.sleep(SECONDS)


async def handle_async(message: Any) -> None:
    await asyncio.sleep(SECONDS)


if __name__ == "__main__":
    Consumer(
        handle_async if sys.argv[2] == "async" else handle,
        sys.argv[1],
        subscription=SUBSCRIPTION,
        max_in_flight=20,
        concurrency=4,
    ).run()
