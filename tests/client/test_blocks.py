"""Back-off while a server fails on purpose, with pauses in proportion to PULLJOBS_TEST_OUTAGE."""

import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import httpx
import pytest

from pulljobs.client import Backoff, Connection, Consumer, Message
from pulljobs.publishing import publish_many
from tests.client.broker import gaps
from tests.client.names import SUBSCRIPTION
from tests.client.test_flow import running
from tests.client.test_outages import OUTAGE
from tests.client.worlds import Live
from tests.sessions import wait_until

SCALE = OUTAGE / 60
LATE = 0.6 if OUTAGE >= 60 else 10.0
"""Seconds by which a pull may come after the end of a block, on a busy machine."""
BEFORE = 4
"""Failures before the first pause, which the next failure begins. Then three probes fail."""
FAILURES = BEFORE + 4


class Pulls(httpx.AsyncHTTPTransport):
    """Transport that records when each pull was sent, except those that take back a pull."""

    def __init__(self) -> None:
        super().__init__()
        self.at: list[float] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        asked: Any = json.loads(request.content or b"{}")
        if "Batch" in asked and "MaxBytes" not in asked:
            self.at.append(time.monotonic())
        return await super().handle_async_request(request)


class Shop(http.server.BaseHTTPRequestHandler):
    """HTTP server that handlers call, which fails FAILURES times and then works."""

    failures = count()

    def do_GET(self) -> None:
        self.send_response(500 if next(self.failures) < FAILURES else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Log nothing to stderr."""


@contextmanager
def shop() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_ladder_probe_and_recovery_while_a_server_fails_on_purpose(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pulls pause for SCALE times 2, 4, 8 and 16 s while probes fail, then times 8, 4 and 2 s."""
    publish_many("orders", [b"x"] * 300)
    monkeypatch.setattr(Shop, "failures", count())
    called: list[float] = []
    pulls = Pulls()
    with shop() as url, httpx.Client(base_url=url) as client:

        def handle(message: Message) -> None:
            called.append(time.monotonic())
            client.get("/").raise_for_status()

        consumer = Consumer(
            handle,
            live.base_url,
            subscription=SUBSCRIPTION,
            max_in_flight=5,
            requeue_delay=lambda attempts: 0.0,
            max_attempts=0,
            backoff=Backoff(initial=SCALE, longest=120 * SCALE),
            connection=Connection(transport=pulls),
        )
        with running(consumer):
            wait_until(lambda: live.states()["DELIVERED"] >= 10, 60 + 3 * OUTAGE)
    failed = called[BEFORE:FAILURES]
    probes = [at for at in pulls.at if at < failed[-1]][-3:]
    recovered = [at for at in pulls.at if at > failed[-1]]
    up = [probe - fail for fail, probe in zip(failed, [*probes, recovered[0]], strict=True)]
    down = list(gaps(recovered[:4]))
    print(f"blocks of {rounded(up)} s, then of {rounded(down)} s")
    for measured, block in zip([*up, *down], [2, 4, 8, 16, 8, 4, 2], strict=True):
        assert block * SCALE <= measured < block * SCALE + LATE


def rounded(seconds: list[float]) -> str:
    return ", ".join(f"{delay:.2f}" for delay in seconds)
