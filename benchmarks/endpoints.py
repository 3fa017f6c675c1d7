"""Endpoints of push consumers in one process, on every address of 127/8.

The payload of a message decides if the answer to its delivery is quick or slow.
"""

import asyncio
import json
import time
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

QUICK: Final = "quick"
SLOW: Final = "slow"
ANSWER: Final = b"HTTP/1.1 204 No Content\r\n\r\n"
BACKLOG: Final = 2000


class Arrival(NamedTuple):
    """Message that reached an endpoint."""

    kind: str
    number: int
    """Number of the message, from its payload."""
    at: float
    """Time on the monotonic clock, which processes of one machine share."""


def serve(pipe: Connection, seconds: float) -> None:
    """Serve all endpoints until the process is killed. Slow endpoints answer after `seconds`.

    Send the port through the pipe, and then all arrivals so far for each message from the pipe.
    """
    asyncio.run(_serve(pipe, seconds))


async def _serve(pipe: Connection, seconds: float) -> None:
    arrivals: list[Arrival] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                arrivals.append(await _arrival(reader))
                if arrivals[-1].kind == SLOW:
                    await asyncio.sleep(seconds)
                writer.write(ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "0.0.0.0", 0, backlog=BACKLOG)
    pipe.send(server.sockets[0].getsockname()[1])
    while True:
        await asyncio.to_thread(pipe.recv)
        pipe.send([tuple(arrival) for arrival in arrivals])


async def _arrival(reader: asyncio.StreamReader) -> Arrival:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    kind, number = json.loads(await reader.readexactly(length))
    return Arrival(kind, number, time.monotonic())
