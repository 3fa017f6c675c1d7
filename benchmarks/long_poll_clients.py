"""Clients that pull, settle the jobs in the answer, and pull again.

Thousands of them share the cores with the server, so each costs as little as it can: a protocol on
the event loop of uvloop, without a task of its own.
"""

import asyncio
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import uvloop

from pulljobs.models import Channel, Consumer

EXPIRES: Final = 60
TOKEN: Final = "token of the benchmark"
PULL: Final = {"Expires": EXPIRES}
_LENGTH: Final = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)


class ConsumerUrl(NamedTuple):
    """Port of the server, and the URL path of a consumer."""

    port: int
    path: str


@dataclass
class Received:
    """Messages that all clients received."""

    at: dict[str, float]
    """Unix times of the last byte of the answer, by message id."""
    cpu_seconds: float = 0.0
    """CPU time of the clients from the first message on."""


def make_consumers(count: int) -> list[str]:
    """Create channels, each with a pull consumer of its name and known tokens.

    Return the names.
    """
    names = [f"long-poll-{count}-{number}" for number in range(count)]
    for name in names:
        channel = Channel(name=name)
        channel.set_token(TOKEN)
        channel.save()
        consumer = Consumer(channel=channel, name=name)
        consumer.set_token(TOKEN)
        consumer.save()
    return names


def pull_until(
    port: int, names: Sequence[str], clients: int, begin: float, until: float
) -> Received:
    """Run clients, spread over the consumers, until a Unix time. Messages come from `begin` on."""
    received = Received({})
    urls = [
        ConsumerUrl(port, f"/channel/{name}/consumer/{name}")
        for name in (names[number % len(names)] for number in range(clients))
    ]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_pull_until(received, urls, begin, until))
    return received


async def _pull_until(
    received: Received, urls: Sequence[ConsumerUrl], begin: float, until: float
) -> None:
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    transports = await asyncio.gather(*(_connect(received, url, failed) for url in urls))
    await asyncio.sleep(begin - time.time())
    used = time.process_time()
    await asyncio.wait([failed], timeout=until - time.time())
    received.cpu_seconds = time.process_time() - used
    if not failed.cancel():
        failed.result()
    for transport in transports:
        transport.abort()


async def _connect(
    received: Received, url: ConsumerUrl, failed: asyncio.Future[None]
) -> asyncio.Transport:
    loop = asyncio.get_running_loop()
    transport, _client = await loop.create_connection(
        lambda: PullingClient(received, url, failed), "127.0.0.1", url.port
    )
    return transport


class PullingClient(asyncio.Protocol):
    """Connection that pulls, settles the jobs in the answer, and pulls again."""

    def __init__(self, received: Received, url: ConsumerUrl, failed: asyncio.Future[None]) -> None:
        self._received, self._url, self._failed = received, url, failed
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send("pull", PULL)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, end, body = self._answer.partition(b"\r\n\r\n")
        length = _LENGTH.search(head + b"\r\n")
        if end and length is not None and len(body) == int(length[1]):
            self._answer = b""
            self._handle(head, body)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(error or ConnectionError("The server closed a connection."))

    def _handle(self, head: bytes, body: bytes) -> None:
        now = time.time()
        if not head.startswith(b"HTTP/1.1 200"):
            self._fail(RuntimeError(f"{head!r}: {body!r}"))
            return
        jobs = json.loads(body)["Result"]
        self._received.at |= {job["Message"]["MessageID"]: now for job in jobs}
        results = [
            {"ID": job["ID"], "LeaseToken": job["LeaseToken"], "Outcome": "DELIVERED"}
            for job in jobs
        ]
        if results:
            self._send("ack", {"Results": results, "Pull": PULL})
        else:
            self._send("pull", PULL)

    def _send(self, route: str, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        head = (
            f"POST {self._url.path}/{route} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"X-Broker-Channel-Token: {TOKEN}\r\nX-Broker-Consumer-Token: {TOKEN}\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        self._transport.write(head.encode() + content)

    def _fail(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)
