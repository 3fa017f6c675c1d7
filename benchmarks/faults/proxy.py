"""A proxy before PostgreSQL that can cut a connection after a commit and before its answer.

    python -m benchmarks.faults.proxy LISTEN_DIRECTORY SERVER_DIRECTORY

On SIGUSR1 the next connection that sends something is the victim: what the server answers is kept
back until it is done (it says `ready for query`, so the commit is through), then both ends are cut.
"""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Final

SOCKET: Final = ".s.PGSQL.5432"
READY: Final = b"Z\x00\x00\x00\x05"
"""Before the last byte of an answer, which is I when no transaction is open any more."""
CHUNK: Final = 1 << 16


class Proxy:
    def __init__(self, target: Path) -> None:
        self._target = target
        self._wanted = 0
        self.cut = 0

    def want_one(self) -> None:
        self._wanted += 1

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server = await asyncio.open_unix_connection(str(self._target / SOCKET))
        except OSError:
            writer.close()
            return
        pipe = _Pipe(self, (reader, writer), server)
        await asyncio.wait(
            [asyncio.create_task(pipe.ask()), asyncio.create_task(pipe.answer())],
            return_when=asyncio.FIRST_COMPLETED,
        )
        writer.close()
        server[1].close()

    def takes(self) -> bool:
        """Whether the connection that asks becomes the victim."""
        if not self._wanted:
            return False
        self._wanted -= 1
        self.cut += 1
        return True


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Pipe:
    def __init__(self, proxy: Proxy, client: Ends, server: Ends) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._doomed = False

    async def ask(self) -> None:
        while said := await _read(self._client):
            self._doomed = self._doomed or self._proxy.takes()
            self._server[1].write(said)

    async def answer(self) -> None:
        kept = b""
        while said := await _read(self._server):
            kept += said
            is_done = kept[-len(READY) - 1 : -1] == READY
            if self._doomed and is_done and kept.endswith(b"I"):
                return
            if is_done or not self._doomed:
                self._client[1].write(kept)
                kept = b""


async def _read(ends: Ends) -> bytes:
    """Nothing at the end, however it came."""
    try:
        return await ends[0].read(CHUNK)
    except OSError:
        return b""


async def main(listen: Path, target: Path) -> None:
    proxy = Proxy(target)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, proxy.want_one)
    server = await asyncio.start_unix_server(proxy.serve, str(listen / SOCKET))
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
