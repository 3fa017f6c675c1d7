"""Proxy in front of a broker that loses requests or answers on demand."""

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

CHUNK = 1 << 16
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """Proxy that cuts random requests, before or after the broker does their work.

    `resets` is the share of requests that are cut.
    """

    def __init__(self, target: str) -> None:
        place = urlsplit(target)
        self._target = str(place.hostname), place.port or 80
        self.port = 0
        self.resets = 0.0
        self.delay = 0.0
        """Seconds until an answer is passed on."""
        self.cut = 0
        """Number of lost requests and lost answers together."""
        self._lose: bytes | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def lose_answer_to(self, path: bytes) -> None:
        """Lose the answer to the next request whose head contains this text."""
        self._lose = path

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with _aborting(writer):
            broker = await asyncio.open_connection(*self._target)
            with _aborting(broker[1]):
                pipe = _Pipe(self, (reader, writer), broker)
                ways = [asyncio.create_task(pipe.ask()), asyncio.create_task(pipe.answer())]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)

    def loses_answer(self, chunk: bytes) -> bool:
        if self._lose is not None and self._lose in chunk:
            self._lose = None
            self.cut += 1
            return True
        return self._loses()

    def loses_request(self) -> bool:
        return self._loses()

    def _loses(self) -> bool:
        lost = random.random() < self.resets / 2
        self.cut += lost
        return lost


class _Pipe:
    def __init__(self, proxy: Proxy, client: Ends, broker: Ends) -> None:
        self._proxy, self._client, self._broker = proxy, client, broker
        self._doomed = False

    async def ask(self) -> None:
        while chunk := await _read(self._client):
            is_head = chunk.startswith((b"POST", b"GET"))
            if is_head and self._proxy.loses_request():
                return
            self._doomed = self._doomed or (is_head and self._proxy.loses_answer(chunk))
            self._broker[1].write(chunk)

    async def answer(self) -> None:
        """Forward answers until one is to be lost, which the broker sends after its commit."""
        while chunk := await _read(self._broker):
            if self._doomed:
                return
            await asyncio.sleep(self._proxy.delay)
            self._client[1].write(chunk)


@contextmanager
def _aborting(end: asyncio.StreamWriter) -> Iterator[None]:
    try:
        yield
    finally:
        end.transport.abort()


async def _read(ends: Ends) -> bytes:
    with suppress(OSError):
        return await ends[0].read(CHUNK)
    return b""


@contextmanager
def proxy_before(target: str) -> Iterator[Proxy]:
    """Run a proxy in front of a broker during the block, on a thread with its own event loop."""
    proxy = Proxy(target)
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(proxy.serve, "127.0.0.1", 0))
    proxy.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(_close(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _close(server: asyncio.Server) -> None:
    server.close()
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    await asyncio.sleep(0)  # What was aborted is closed in the loop's next pass.
