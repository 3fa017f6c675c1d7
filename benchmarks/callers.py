"""Clients that call as fast as they are answered, each on a connection of its own."""

import asyncio
import re
import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

TOKEN = "of the benchmark"


class Call(NamedTuple):
    method: str
    path: str
    body: bytes = b""


class Timed(NamedTuple):
    seconds: list[float]
    """Of each call."""
    elapsed: float
    answers: list[bytes]

    @property
    def rate(self) -> float:
        return len(self.seconds) / self.elapsed

    @property
    def size(self) -> int:
        return int(median(len(answer) for answer in self.answers))


def timed(port: int, calls: Sequence[Call], clients: int) -> Timed:
    """All calls, each by whichever client is free."""
    return asyncio.run(_timed(port, calls, clients))


async def _timed(port: int, calls: Sequence[Call], clients: int) -> Timed:
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
        got = await answer(reader, writer, call)
        done.seconds.append(time.perf_counter() - started)
        done.answers.append(got)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, call: Call) -> bytes:
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
