"""Requests to the health ports of workers and servers, during the whole run."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol

from benchmarks.faults.history import READY, UNREADY, Line

READYZ: Final = "/readyz"
EVERY: Final = 0.25
ANSWER_SECONDS: Final = 10.0
NO_ANSWER: Final = 0
OK: Final = 200


class Answer(NamedTuple):
    """Answer of a health port."""

    status: int
    """HTTP status, or 0 without an answer."""
    body: dict[str, Any]


class Probed(Protocol):
    """Process with a health port."""

    port: int

    @property
    def pid(self) -> int:
        """Id of the process."""

    def is_alive(self) -> bool:
        """Return True if the process has not ended."""


class Prober:
    """Thread that asks living processes if they are ready, inside the `with` block."""

    def __init__(
        self, living: Callable[[], Iterable[Probed]], write: Callable[[Line], object]
    ) -> None:
        """`write` gets a line for each process that an answer is about.

        It gets none before the first good answer of a process, which is still starting.
        """
        self._living, self._write = living, write
        self._over = threading.Event()
        self._has_begun: set[int] = set()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Prober":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def silent(self, started: Iterable[Probed]) -> list[str]:
        """Return a sentence for each of these processes that was never ready."""
        return [
            f"process {process.pid} was never ready"
            for process in started
            if process.pid not in self._has_begun
        ]

    def _watch(self) -> None:
        while not self._over.wait(EVERY):
            for process in self._living():
                self._probe(process)

    def _probe(self, process: Probed) -> None:
        since = time.monotonic()
        answer = ask(process.port, READYZ)
        at = time.monotonic()
        if answer.status == OK:
            self._has_begun.add(process.pid)
        if process.pid in self._has_begun and process.is_alive():
            for pid, is_ready in _read_health(process.pid, answer):
                event = READY if is_ready else UNREADY
                self._write(Line(event, 0, "-", pid, since, at, str(answer.status)))


def _read_health(pid: int, answer: Answer) -> Iterator[tuple[int, bool]]:
    """Yield the id and readiness of each child of a worker, or of a process without children."""
    children = answer.body.get("children")
    if not children:
        yield pid, answer.status == OK
    for child in children or ():
        if child["pid"]:  # Otherwise the next child is not started yet.
            yield child["pid"], child["is_ready"]


def ask(port: int, path: str) -> Answer:
    """Send a GET request to a port of this machine. Without an answer the status is 0."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)) as connection:
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = json.loads(response.read() or b"{}")
        except (OSError, HTTPException, ValueError):
            return Answer(NO_ANSWER, {})
    return Answer(response.status, body if isinstance(body, dict) else {})


def free_port() -> int:
    """Return a port of this machine that no process listens on."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port: int = taken.getsockname()[1]
    return port
