"""HTTP clients that send the next request as soon as the last is answered."""

import asyncio
import re
import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

TOKEN = "token of the benchmark"


class Call(NamedTuple):
    """HTTP request."""

    method: str
    path: str
    body: bytes = b""


class Timed(NamedTuple):
    """Times and answers of a series of calls."""

    seconds: list[float]
    """Seconds of each call, in the order of the answers."""
    elapsed: float
    answers: list[bytes]

    @property
    def rate(self) -> float:
        """Calls a second of all clients together."""
        return len(self.seconds) / self.elapsed

    @property
    def size(self) -> int:
        """Median size of an answer in bytes."""
        return int(median(len(answer) for answer in self.answers))


def time_calls(port: int, calls: Sequence[Call], clients: int) -> Timed:
    """Send each call over a free one of `clients` connections. Return times and answers."""
    return asyncio.run(_time_calls(port, calls, clients))


async def _time_calls(port: int, calls: Sequence[Call], clients: int) -> Timed:
    left, done = iter(calls), Timed([], 0.0, [])
    connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(clients)]
    started = time.perf_counter()
    await asyncio.gather(*(_client(*streams, left, done) for streams in connections))
    elapsed = time.perf_counter() - started
    for _reader, writer in connections:
        writer.close()
    return done._replace(elapsed=elapsed)


async def _client(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: Iterator[Call], done: Timed
) -> None:
    for call in left:
        started = time.perf_counter()
        answer = await send_call(reader, writer, call)
        done.seconds.append(time.perf_counter() - started)
        done.answers.append(answer)


async def send_call(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, call: Call
) -> bytes:
    """Send a request and return the body of its answer. Raise RuntimeError unless it is 2xx."""
    writer.write(
        f"{call.method} {call.path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"X-Broker-Channel-Token: {TOKEN}\r\nX-Broker-Consumer-Token: {TOKEN}\r\n"
        f"Content-Length: {len(call.body)}\r\n\r\n".encode()
        + call.body
    )
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    body = await _body(reader, head)
    if head[9] != "2":
        raise RuntimeError(f"{call.method} {call.path}: {head.splitlines()[0]}: {body[:200]!r}")
    return body


async def _body(reader: asyncio.StreamReader, head: str) -> bytes:
    if "transfer-encoding: chunked" not in head:
        [*_others, length] = [0, *re.findall(r"content-length: (\d+)", head)]
        return await reader.readexactly(int(length))
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body
