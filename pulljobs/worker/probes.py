"""/livez and /readyz of a worker, for those who restart and route by them."""

import json
import logging
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, Final, NamedTuple

from pulljobs.errors import ConfigurationError

logger = logging.getLogger("pulljobs.worker")

PATIENCE: Final = 5
"""Seconds for a request."""


class Health(NamedTuple):
    """Live: no loop is dead or hung. Ready: the database was reached of late."""

    pid: int
    is_live: bool
    is_ready: bool


class Probes:
    """A server beside the work; it reads shared memory, so it answers whatever the rest does."""

    def __init__(self, address: tuple[str, int], look: Callable[[], list[Health]]) -> None:
        try:
            self._server = _Server(address, look)
        except OSError as error:
            host, port = address
            raise ConfigurationError(
                f"Can't listen on {host}:{port} ({error}): choose another --health-port."
            ) from error

    def __enter__(self) -> "Probes":
        host, port = self._server.server_address[:2]
        logger.info("Answering http://%s:%d/livez and /readyz.", host, port)
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

    def __init__(self, address: tuple[str, int], look: Callable[[], list[Health]]) -> None:
        super().__init__(address, _Handler)
        self.look = look


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE
    server: _Server
    asked: ClassVar[dict[str, str]] = {"/livez": "is_live", "/readyz": "is_ready"}

    def do_GET(self) -> None:
        asked = self.asked.get(self.path)
        if asked is None:
            self._answer(HTTPStatus.NOT_FOUND, {"paths": list(self.asked)})
            return
        found = self.server.look()
        is_well = all(getattr(one, asked) for one in found)
        status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
        self._answer(status, {"children": [one._asdict() for one in found]})

    def _answer(self, status: HTTPStatus, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A probe every few seconds is no news."""
