"""/livez and /readyz of a worker, for those who restart and route by them, and its /metrics."""

import json
import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from pulljobs.errors import ConfigurationError

logger = logging.getLogger("pulljobs.worker")

PATIENCE: Final = 5
"""Seconds for all of a request to come, and for its answer to be taken."""
MOST: Final = 16
"""Connections at once, each with a thread, that may take their time to ask."""
LIMIT: Final = 4 * MOST
"""With those that are being answered."""
ASKED: Final = {"/livez": "is_live", "/readyz": "is_ready"}
METRICS: Final = "/metrics"


class Health(NamedTuple):
    """Live: no loop is dead or hung. Ready: the database was reached of late."""

    pid: int
    is_live: bool
    is_ready: bool


class Probes:
    """A server beside the work; it reads shared memory, so it answers whatever the rest does."""

    def __init__(
        self, address: tuple[str, int], look: Callable[[], list[Health]], *, metrics: bool = False
    ) -> None:
        try:
            self._server = _Server(address, look, metrics)
        except OSError as error:
            raise ConfigurationError(
                f"Can't listen on {_shown(address)} ({error}): "
                "choose another --health-port or --health-host."
            ) from error

    def __enter__(self) -> "Probes":
        paths = " and ".join(self._server.paths)
        logger.info("Answering http://%s%s.", _shown(self._server.server_address), paths)
        threading.Thread(target=self._server.serve_forever, name="probes", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = MOST  # TCP tries again only after a second what a shorter one drops.

    def __init__(
        self, address: tuple[str, int], look: Callable[[], list[Health]], metrics: bool
    ) -> None:
        self.address_family = _family(address[0])
        super().__init__(address, _Handler)
        self.look = look
        self.paths = [*ASKED, METRICS] if metrics else list(ASKED)
        self._came: dict[socket.socket, float] = {}
        """Connections that are open; when they came, on the monotonic clock."""

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._came) >= MOST:
            self._end_waits(before=time.monotonic())
        if len(self._came) >= LIMIT:
            self.shutdown_request(request)
            return
        self._came[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._came.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Between requests: the timeout of a socket begins anew with each byte that drips in."""
        self._end_waits(before=time.monotonic() - PATIENCE)

    def _end_waits(self, before: float) -> None:
        """Of who came before; what was asked by now is answered."""
        for request, came in self._came.copy().items():
            if came < before:
                with suppress(OSError):  # It has ended since.
                    request.shutdown(socket.SHUT_RD)


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE
    server: _Server

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path not in self.server.paths:
            self._answer(HTTPStatus.NOT_FOUND, {"paths": self.server.paths})
        elif path == METRICS:
            self._send(HTTPStatus.OK, *_metrics(self.headers.get("Accept", "")))
        else:
            self._tell(ASKED[path])

    def _tell(self, asked: str) -> None:
        found = self.server.look()
        is_well = all(getattr(one, asked) for one in found)
        status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
        self._answer(status, {"children": [one._asdict() for one in found]})

    def _answer(self, status: HTTPStatus, content: dict[str, Any]) -> None:
        self._send(status, json.dumps(content).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A probe every few seconds is no news."""


def _family(host: str) -> socket.AddressFamily:
    """IPv6 for who has nothing else: names such as localhost mostly have both."""
    found = {family for family, *_ in socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM)}
    return socket.AF_INET if socket.AF_INET in found else socket.AF_INET6


def _shown(address: tuple[Any, ...]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _metrics(accept: str) -> tuple[bytes, str]:
    """With what handlers count by prometheus_client themselves."""
    from pulljobs.metrics import exposition

    return exposition.answer(accept, with_others=True)
