"""Endpoint of the push consumer of a run, which answers as the payload asks.

    python -m benchmarks.faults.roles.endpoint PORT

It answers 429 with a Retry-After, which throttles the consumer, to a few first deliveries, and 500
to the other first deliveries of jobs that are to fail. It accepts the rest.
"""

import asyncio
import json
import random
import sys
from collections.abc import Mapping
from typing import Any, Final

ACCEPTED: Final = b"HTTP/1.1 204 No Content\r\n\r\n"
FAILED: Final = b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"
BUSY: Final = b"HTTP/1.1 429 X\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
BUSY_SHARE: Final = 0.01
BACKLOG: Final = 1000


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of a connection until it ends."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            script = json.loads(await reader.readexactly(length))
            await asyncio.sleep(script["seconds"])
            is_first = head.partition(b"x-request-id:")[2].partition(b"\r\n")[0].endswith(b"-1")
            writer.write(choose_answer(script, is_first=is_first))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def choose_answer(script: Mapping[str, Any], *, is_first: bool) -> bytes:
    """Return the HTTP answer to a delivery. Deliveries after the first of a job are accepted."""
    if not is_first:
        return ACCEPTED
    if random.random() < BUSY_SHARE:
        return BUSY
    return FAILED if script["end"] == "fail" else ACCEPTED


async def main(port: int) -> None:
    """Serve until the process is killed."""
    server = await asyncio.start_server(answer, "127.0.0.1", port, backlog=BACKLOG)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
