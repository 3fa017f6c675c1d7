"""Worker that is frozen in tests: `python -m tests.client.frozen URL plain|async FILE`.

Its handler writes a line with the monotonic clock for each effect, without an end of its own.
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from pulljobs.client import Consumer, Message
from tests.client.names import SUBSCRIPTION

STEPS = 20


def write(effect: str) -> None:
    with Path(sys.argv[3]).open("a") as effects:
        effects.write(f"{effect} {time.monotonic()}\n")


def handle(message: Message) -> None:
    write("begun")
    while not message.lost:
        write("effect")
        time.sleep(0.001)
    write("stopped")


async def handle_async(message: Any) -> None:
    write("begun")
    try:
        while True:
            write("effect")
            for _ in range(STEPS):
                await asyncio.sleep(0)
    finally:
        write("stopped")


if __name__ == "__main__":
    Consumer(
        handle_async if sys.argv[2] == "async" else handle,
        sys.argv[1],
        subscription=SUBSCRIPTION,
        max_in_flight=3,
        auto_renew=True,
    ).run()
