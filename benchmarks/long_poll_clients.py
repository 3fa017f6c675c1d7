"""Clients that do nothing but linger: each pulls, settles what it gets, and pulls again."""

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pulljobs.models import Channel, Consumer

EXPIRES: Final = 30
SETTLE_SECONDS: Final = 5.0
TOKEN: Final = "of the benchmark"


class Place(NamedTuple):
    """Where to pull, and the headers to do it with."""

    port: int
    path: str


@dataclass
class Crowd:
    """`at` are Unix times of the last byte, by message."""

    at: dict[str, float]


def make_consumers(count: int) -> list[str]:
    """Channels, each with a pull consumer of the same name and known tokens."""
    names = [f"linger-{count}-{number}" for number in range(count)]
    for name in names:
        channel = Channel(name=name)
        channel.set_token(TOKEN)
        channel.save()
        consumer = Consumer(channel=channel, name=name)
        consumer.set_token(TOKEN)
        consumer.save()
    return names


def linger(port: int, names: Sequence[str], clients: int, until: float) -> Crowd:
    """So many clients, spread over the consumers, until that Unix time."""
    crowd = Crowd({})
    places = [
        Place(port, f"/channel/{name}/consumer/{name}")
        for name in (names[number % len(names)] for number in range(clients))
    ]
    asyncio.run(_linger(crowd, places, until))
    return crowd


async def _linger(crowd: Crowd, places: Sequence[Place], until: float) -> None:
    clients = [asyncio.create_task(_client(crowd, place)) for place in places]
    await asyncio.sleep(until - time.time())
    for client in clients:
        client.cancel()
    for outcome in await asyncio.gather(*clients, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome


async def _client(crowd: Crowd, place: Place) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    try:
        pull: dict[str, Any] = {"Expires": EXPIRES}
        path, body = "pull", pull
        while True:
            answer = await _post(reader, writer, place, path, body)
            now = time.time()
            results = [
                {"ID": job["ID"], "LeaseToken": job["LeaseToken"], "Outcome": "DELIVERED"}
                for job in answer["Result"]
            ]
            crowd.at |= {job["Message"]["MessageID"]: now for job in answer["Result"]}
            path, body = ("ack", {"Results": results, "Pull": pull}) if results else ("pull", pull)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _post(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    place: Place,
    path: str,
    body: dict[str, Any],
) -> Any:
    content = json.dumps(body).encode()
    head = (
        f"POST {place.path}/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
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
