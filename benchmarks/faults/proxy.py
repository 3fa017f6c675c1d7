"""Proxy for PostgreSQL or HTTP that can cut, stall and outlive connections.

    python -m benchmarks.faults.proxy LISTEN TARGET

Each address is the directory of a PostgreSQL socket or a port on 127.0.0.1.

On SIGUSR1 the next connection that sends something is the victim. The proxy keeps back the answers
of the server until it is ready for the next query, so the commit is through, and cuts both ends.

On SIGUSR2 it chooses a byte of what follows. At that byte it stops reading and passes nothing on
for a second, on all connections. After SIGHUP the sessions of clients that end stay open on the
server, as if their hosts were lost.
"""

import asyncio
import math
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

SOCKET: Final = ".s.PGSQL.5432"
READY: Final = b"Z\x00\x00\x00\x05"
"""Bytes before the last byte of an answer, which is I when no transaction is open."""
CHUNK: Final = 1 << 16
STALL_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 1.0
"""Time after which the proxy stalls in the middle of a chunk, though its byte is not reached."""
FARTHEST_BYTE: Final = 1 << 21
"""Bytes after SIGUSR2 among which the byte of the stall is chosen, near bytes more often."""
LOST_SECONDS: Final = 10.0
"""Time for which sessions of lost clients stay open, and for which clients count as lost."""


class Proxy:
    """Proxy that forwards connections, and cuts, stalls or outlives them on request."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._wanted = 0
        self._stalled_until = self._lost_until = self._patient_until = 0.0
        self._bytes_left: int | None = None
        """Bytes to pass on before the next stall, or None if none is due."""
        self.cut = 0

    def request_cut(self) -> None:
        """Cut the next connection on which a client sends something, in place of passing an answer.

        It is the first answer after which no transaction is open, so the client can't know if its
        commit succeeded. Over HTTP the answer is kept back until one side closes the connection.
        """
        self._wanted += 1

    def request_stall(self) -> None:
        """Choose the byte of the following traffic at which the proxy stops for a second."""
        self._bytes_left = round(math.exp(random.uniform(0, math.log(FARTHEST_BYTE))))
        self._patient_until = time.monotonic() + PATIENCE_SECONDS

    def lose_clients(self) -> None:
        """Keep open the server sessions of clients that end within the next ten seconds."""
        self._lost_until = time.monotonic() + LOST_SECONDS

    async def pass_on(self, chunk: bytes, writer: asyncio.StreamWriter) -> None:
        """Forward a chunk. Pause in the middle if it contains the byte at which a stall is due."""
        await self._wait()
        if self._bytes_left is not None:
            is_late = time.monotonic() > self._patient_until
            passed = min(self._bytes_left, len(chunk) // 2 if is_late else len(chunk))
            writer.write(chunk[:passed])
            chunk, self._bytes_left = chunk[passed:], self._bytes_left - passed
            if chunk:
                self._bytes_left = None
                self._stalled_until = time.monotonic() + STALL_SECONDS
                await self._wait()
        writer.write(chunk)
        with suppress(OSError):
            await writer.drain()

    async def _wait(self) -> None:
        while (left := self._stalled_until - time.monotonic()) > 0:
            await asyncio.sleep(left)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a client's connection until it ends at one side or is cut."""
        try:
            server = await self._connect()
        except OSError:
            writer.close()
            return
        pipe = _Pipe(self, (reader, writer), server)
        await asyncio.wait(
            [asyncio.create_task(pipe.pass_requests()), asyncio.create_task(pipe.pass_answers())],
            return_when=asyncio.FIRST_COMPLETED,
        )
        writer.close()
        if time.monotonic() < self._lost_until:
            await asyncio.sleep(LOST_SECONDS)
        server[1].close()

    async def _connect(self) -> "Ends":
        if self._target.isdecimal():
            return await asyncio.open_connection("127.0.0.1", int(self._target))
        return await asyncio.open_unix_connection(str(Path(self._target) / SOCKET))

    async def listen(self, address: str) -> asyncio.Server:
        """Accept connections at an address."""
        if address.isdecimal():
            return await asyncio.start_server(self.serve, "127.0.0.1", int(address))
        return await asyncio.start_unix_server(self.serve, str(Path(address) / SOCKET))

    def take_victim(self) -> bool:
        """Return True if the connection that calls this is to be cut, and count it as cut."""
        if not self._wanted:
            return False
        self._wanted -= 1
        self.cut += 1
        return True


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Pipe:
    """Two joined connections: that of a client, and that to the server which answers it."""

    def __init__(self, proxy: Proxy, client: Ends, server: Ends) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._is_victim = False

    async def pass_requests(self) -> None:
        while chunk := await _read(self._client):
            self._is_victim = self._is_victim or self._proxy.take_victim()
            await self._proxy.pass_on(chunk, self._server[1])

    async def pass_answers(self) -> None:
        kept = b""
        while chunk := await _read(self._server):
            kept += chunk
            is_done = kept[-len(READY) - 1 : -1] == READY
            if self._is_victim and is_done and kept.endswith(b"I"):
                return
            if is_done or not self._is_victim:
                await self._proxy.pass_on(kept, self._client[1])
                kept = b""


async def _read(ends: Ends) -> bytes:
    """Read a chunk. Return no bytes at the end or after an error."""
    try:
        return await ends[0].read(CHUNK)
    except OSError:
        return b""


async def main(listen: str, target: str) -> None:
    """Serve at one address and connect to the other."""
    proxy = Proxy(target)
    for number, handle in (
        (signal.SIGUSR1, proxy.request_cut),
        (signal.SIGUSR2, proxy.request_stall),
        (signal.SIGHUP, proxy.lose_clients),
    ):
        asyncio.get_running_loop().add_signal_handler(number, handle)
    server = await proxy.listen(listen)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
