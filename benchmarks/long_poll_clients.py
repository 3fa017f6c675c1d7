"""Clients that pull, settle the jobs in the answer, and pull again."""

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pulljobs.models import Channel, Consumer

EXPIRES: Final = 60
SETTLE_SECONDS: Final = 5.0
TOKEN: Final = "token of the benchmark"


class ConsumerUrl(NamedTuple):
    """Port of the server and path of a consumer."""

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
    asyncio.run(_pull_until(received, urls, begin, until))
    return received


async def _pull_until(
    received: Received, urls: Sequence[ConsumerUrl], begin: float, until: float
) -> None:
    clients = [asyncio.create_task(_client(received, url)) for url in urls]
    await asyncio.sleep(begin - time.time())
    used = time.process_time()
    await asyncio.sleep(until - time.time())
    received.cpu_seconds = time.process_time() - used
    for client in clients:
        client.cancel()
    for outcome in await asyncio.gather(*clients, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome


async def _client(received: Received, url: ConsumerUrl) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", url.port)
    try:
        pull: dict[str, Any] = {"Expires": EXPIRES}
        path, body = "pull", pull
        while True:
            answer = await _post(reader, writer, url, path, body)
            now = time.time()
            results = [
                {"ID": job["ID"], "LeaseToken": job["LeaseToken"], "Outcome": "DELIVERED"}
                for job in answer["Result"]
            ]
            received.at |= {job["Message"]["MessageID"]: now for job in answer["Result"]}
            path, body = ("ack", {"Results": results, "Pull": pull}) if results else ("pull", pull)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _post(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    url: ConsumerUrl,
    path: str,
    body: dict[str, Any],
) -> Any:
    content = json.dumps(body).encode()
    head = (
        f"POST {url.path}/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"X-Broker-Channel-Token: {TOKEN}\r\nX-Broker-Consumer-Token: {TOKEN}\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    writer.write(head.encode() + content)
    answered = await reader.readuntil(b"\r\n\r\n")
    lines = answered.decode().lower().split("\r\n")
    [length] = [int(line[15:]) for line in lines if line.startswith("content-length:")]
    text = await reader.readexactly(length)
    if not lines[0].startswith("http/1.1 200"):
        raise RuntimeError(f"{lines[0]}: {text.decode()}")
    return json.loads(text)
