"""Server on the health port of a worker: /livez and /readyz for orchestrators, and /metrics."""

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
"""Seconds in which a client has to send its whole request, and then to read the answer."""
PATIENT_CONNECTIONS: Final = 16
"""Connections that may take their time to send a request. Each has a thread."""
MAX_CONNECTIONS: Final = 4 * PATIENT_CONNECTIONS
"""Connections in all, including those that are being answered."""
PROBES: Final = {"/livez": "is_live", "/readyz": "is_ready"}
METRICS: Final = "/metrics"


class ChildHealth(NamedTuple):
    """Health of one child: live if no loop is dead or hangs, ready if it reaches the database."""

    pid: int
    is_live: bool
    is_ready: bool


class ProbeServer:
    """HTTP server in a thread of the supervisor.

    It reads memory that the children share, so it answers even if they hang.
    """

    def __init__(
        self,
        address: tuple[str, int],
        look: Callable[[], list[ChildHealth]],
        *,
        metrics: bool = False,
    ) -> None:
        try:
            self._server = _Server(address, look, metrics)
        except (OSError, UnicodeError) as error:  # Unicode: of a host such as "a..b".
            raise ConfigurationError(
                f"The probe server can't listen on {_format_address(address)} ({error}): "
                "choose another --health-port or --health-host."
            ) from error

    def __enter__(self) -> "ProbeServer":
        paths = " and ".join(self._server.paths)
        address = _format_address(self._server.server_address)
        logger.info("The probe server answers http://%s%s.", address, paths)
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
    # A shorter queue drops connections, and TCP repeats them only after a second.
    request_queue_size = PATIENT_CONNECTIONS

    def __init__(
        self, address: tuple[str, int], look: Callable[[], list[ChildHealth]], metrics: bool
    ) -> None:
        self.address_family = _address_family(address[0])
        super().__init__(address, _Handler)
        self.look = look
        self.paths = [*PROBES, METRICS] if metrics else list(PROBES)
        self._opened_at: dict[socket.socket, float] = {}
        """Open connections, with the time of the monotonic clock at which they were accepted."""

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._opened_at) >= PATIENT_CONNECTIONS:
            self._end_waits(before=time.monotonic())
        if len(self._opened_at) >= MAX_CONNECTIONS:
            self.shutdown_request(request)
            return
        self._opened_at[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except RuntimeError as error:  # No thread starts: a traceback would say no more.
            logger.warning("A probe got no answer: %s", error)
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        self._opened_at.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End slow requests: the timeout of a socket restarts with every byte that arrives."""
        self._end_waits(before=time.monotonic() - PATIENCE)

    def _end_waits(self, before: float) -> None:
        """Stop reading from connections accepted before then. Complete requests are answered."""
        for request, opened_at in self._opened_at.copy().items():
            if opened_at < before:
                with suppress(OSError):  # The connection has ended by now.
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
            self._probe(PROBES[path])

    def do_HEAD(self) -> None:
        """Answer HEAD, which `wget --spider` and some load balancers send, without a body."""
        self.do_GET()

    def _probe(self, attribute: str) -> None:
        children = self.server.look()
        is_good = all(getattr(child, attribute) for child in children)
        status = HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE
        self._answer(status, {"children": [child._asdict() for child in children]})

    def _answer(self, status: HTTPStatus, content: dict[str, Any]) -> None:
        self._send(status, json.dumps(content).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a health probe every few seconds would fill the log."""


def _address_family(host: str) -> socket.AddressFamily:
    """Return the family of a host's addresses: IPv4 if it has such an address, or else IPv6."""
    infos = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM)
    families = {family for family, *_ in infos}
    return socket.AF_INET if socket.AF_INET in families else socket.AF_INET6


def _format_address(address: tuple[Any, ...]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _metrics(accept: str) -> tuple[bytes, str]:
    """Return the metrics and their content type, including metrics that handlers define."""
    from pulljobs.metrics import exposition

    return exposition.answer(accept, with_others=True)
