"""Worker that is frozen in tests: `python -m tests.client.frozen URL plain|async FILE`.

For each effect its handler writes a line with the time of the monotonic clock, until its lease is
lost. It stops its process when a file named FILE with the suffix `.stop` appears: a signal from
outside could come between a check of the lease and the effect that follows.
"""

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import Any

from pulljobs.client import Consumer, Message
from tests.client.names import SUBSCRIPTION


def write(effect: str) -> None:
    with Path(sys.argv[3]).open("a") as effects:
        effects.write(f"{effect} {time.monotonic()}\n")


def stop_if_asked() -> None:
    asked = Path(sys.argv[3]).with_suffix(".stop")
    if asked.exists():
        asked.unlink()
        signal.raise_signal(signal.SIGSTOP)


def handle(message: Message) -> None:
    write("begun")
    while not message.lost:
        write("effect")
        stop_if_asked()
    write("stopped")


async def handle_async(message: Any) -> None:
    write("begun")
    try:
        while True:
            write("effect")
            stop_if_asked()
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
