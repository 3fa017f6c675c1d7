"""HTTP client that is a worker without Django, as an outside process.

    python -m benchmarks.faults.roles.client URL plain|async

Its handlers write a line at intervals, so that the checker sees runs that outlast their lease.
"""

import asyncio
import sys
import time
from typing import Any, Final

from benchmarks.faults.history import ENDED, STARTED, WORKED, Entry
from benchmarks.faults.roles import client_breaks
from benchmarks.faults.roles.endings import raise_ending
from benchmarks.faults.roles.environment import BREAK, history_writer
from benchmarks.faults.roles.recorder import Recorder
from pulljobs import ids
from pulljobs.client import AsyncMessage, Connection, Consumer, Message, Subscription

SUBSCRIPTION: Final = Subscription("faults", "worked", "", "")
CONCURRENCY: Final = 4
IN_FLIGHT: Final = 8
STEP_SECONDS: Final = 0.05


def handle(message: Message) -> None:
    """Note at intervals that the handler works, until the time is over or the lease is lost."""
    script = message.json()
    _note(STARTED, message)
    for _step in range(round(script["seconds"] / STEP_SECONDS)):
        if message.lost:
            break
        _note(WORKED, message)
        time.sleep(STEP_SECONDS)
    _end(message, script)


async def handle_async(message: AsyncMessage) -> None:
    """Note at intervals that the handler works, until its time is over or it is cancelled."""
    script = message.json()
    _note(STARTED, message)
    for _step in range(round(script["seconds"] / STEP_SECONDS)):
        _note(WORKED, message)
        await asyncio.sleep(STEP_SECONDS)
    _end(message, script)


def _end(message: Any, script: dict[str, Any]) -> None:
    _note(ENDED, message)
    raise_ending(script, is_first=not message.job.given["RetryCount"])


def _note(event: str, message: Any) -> None:
    entry = Entry(ids.decode(message.id), message.job.lease_token)
    history_writer().write(event, [entry])


if __name__ == "__main__":
    client_breaks.install(BREAK)
    Consumer(
        handle_async if sys.argv[2] == "async" else handle,
        sys.argv[1],
        subscription=SUBSCRIPTION,
        max_in_flight=IN_FLIGHT,
        concurrency=CONCURRENCY,
        max_attempts=10_000,
        requeue_delay=None,  # that of the consumer
        auto_renew=True,
        connection=Connection(transport=Recorder(history_writer())),
    ).run()
