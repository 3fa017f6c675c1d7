"""Proxy in front of PostgreSQL that can fall silent: it then accepts data and discards it."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from django.db import connections
from django.db.backends.postgresql.base import DatabaseWrapper

from tests.factories import USING

CHUNK: Final = 1 << 16


class SilentProxy:
    """Proxy on a TCP port of this machine. A connection that was once silenced stays silent."""

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._connect = connect
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._silences = 0
        self._is_silent = False
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def silence(self) -> None:
        """Discard everything that arrives from now on, also on new connections, but close none."""
        self._is_silent = True
        self._silences += 1

    def speak(self) -> None:
        """Pass new connections on to the server again."""
        self._is_silent = False

    def close(self) -> None:
        for end in [self._listening, *self._ends]:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in [self._listening, *self._ends]:
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listening.accept()[0]
                self._ends.append(client)
                if self._is_silent:
                    self._start(client, None)
                else:
                    server = self._connect()
                    self._ends.append(server)
                    self._start(client, server)
                    self._start(server, client)

    def _start(self, source: socket.socket, target: socket.socket | None) -> None:
        thread = threading.Thread(target=self._pass_on, args=(source, target), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _pass_on(self, source: socket.socket, target: socket.socket | None) -> None:
        silences = self._silences
        with suppress(OSError):
            while chunk := source.recv(CHUNK):
                if target is not None and silences == self._silences:
                    target.sendall(chunk)
        if target is not None and silences == self._silences:
            with suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)


def _connect() -> socket.socket:
    """Return a socket that is connected to the server of the test's database."""
    params = connections[USING].get_connection_params()
    host, port = str(params.get("host") or "localhost"), int(params.get("port") or 5432)
    if not host.startswith("/"):
        return socket.create_connection((host, port))
    with ExitStack() as opened:
        server = opened.enter_context(closing(socket.socket(socket.AF_UNIX)))
        server.connect(str(Path(host) / f".s.PGSQL.{port}"))
        opened.pop_all()
    return server


@contextmanager
def silent_proxy() -> Iterator[SilentProxy]:
    with closing(SilentProxy(_connect)) as proxy:
        yield proxy


@contextmanager
def behind(proxy: SilentProxy, **options: Any) -> Iterator[DatabaseWrapper]:
    """Connect this thread to the test's database through the proxy, within the block."""
    known = connections[USING]
    options = {"sslmode": "disable", "gssencmode": "disable", **options}
    address = {"HOST": "127.0.0.1", "PORT": str(proxy.port), "OPTIONS": options}
    wrapper = DatabaseWrapper({**known.settings_dict, **address}, USING)
    connections[USING] = wrapper
    try:
        yield wrapper
    finally:
        wrapper.close()
        connections[USING] = known
