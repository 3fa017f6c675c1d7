"""An endpoint on loopback that answers as a test wants it, and remembers what it got."""

import asyncio
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import NamedTuple, TypeVar

from tests.sessions import PATIENCE_SECONDS

OK = b"HTTP/1.1 204 No Content\r\n\r\n"
Writer = asyncio.StreamWriter
T = TypeVar("T")


class Received(NamedTuple):
    line: str
    headers: list[tuple[str, str]]
    body: bytes
    at: float
    """Time of the monotonic clock."""
    connection: int
    """Number of the connection by which the request came, from 0."""
    reader: asyncio.StreamReader

    def header(self, name: str) -> str | None:
        return {key.lower(): value for key, value in self.headers}.get(name.lower())


Answer = Callable[[Received, Writer], Awaitable[None]]


def answering(*answers: bytes) -> Answer:
    """Return a function that gives these answers in turn, and the last one forever."""
    left = list(answers)

    async def answer(received: Received, writer: Writer) -> None:
        writer.write(left.pop(0) if len(left) > 1 else left[0])

    return answer


def slow(seconds: float) -> Answer:
    async def answer(received: Received, writer: Writer) -> None:
        await asyncio.sleep(seconds)
        writer.write(OK)

    return answer


class Endpoint:
    """HTTP server on loopback, on one or more ports, which keeps the requests that it received."""

    def __init__(
        self,
        answer: Answer,
        *,
        host: str = "127.0.0.1",
        ports: int = 1,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.answer, self.received = answer, list[Received]()
        self._host, self._tls, self._connections = host, tls, 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers = [self._do(self._listen()) for _port in range(ports)]
        self.ports = [server.sockets[0].getsockname()[1] for server in self._servers]

    @property
    def port(self) -> int:
        return int(self.ports[0])

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self.port}/hook"

    def close(self) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        self._loop.close()

    def _do(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, self._host, 0, backlog=1000, ssl=self._tls)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        number, self._connections = self._connections, self._connections + 1
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                while True:
                    received = await _read(reader, number)
                    self.received.append(received)
                    await self.answer(received, writer)
                    await writer.drain()
        finally:
            self._tasks.discard(task)
            writer.close()


async def _read(reader: asyncio.StreamReader, connection: int) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    headers = [
        (name, value.strip()) for name, _colon, value in (row.partition(":") for row in lines)
    ]
    length = int({name.lower(): value for name, value in headers}["content-length"])
    return Received(
        line, headers, await reader.readexactly(length), time.monotonic(), connection, reader
    )
