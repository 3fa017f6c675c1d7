"""Producers that know several servers of one broker publish to the next when one fails."""

import asyncio
import http.server
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from types import FrameType
from typing import Any

import httpx
import pytest

from example_project.state import BASE_DIR
from pulljobs.client import AsyncProducer, Connection, Producer, Unreachable, sending
from pulljobs.errors import ConfigurationError
from tests.client.broker import FakeBroker
from tests.client.names import SHOP
from tests.sessions import PATIENCE_SECONDS

URLS = ["http://one", "http://two", "http://three"]


class Servers:
    """Transport to servers of one broker, some of which fail. `asked` counts their requests."""

    def __init__(
        self, failing: Callable[[httpx.Request], httpx.Response] | None, *down: str
    ) -> None:
        self.broker, self.failing, self.down = FakeBroker(), failing, set(down)
        self.asked: Counter[str] = Counter()

    @property
    def connection(self) -> Connection:
        return Connection(transport=httpx.MockTransport(self.answer))

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked[request.url.host] += 1
        if request.url.host not in self.down:
            return self.broker.answer(request)
        if self.failing is None:
            raise httpx.ConnectError("refused", request=request)
        return self.failing(request)


def unavailable(request: httpx.Request) -> httpx.Response:
    return httpx.Response(503, json={"detail": "It stops."})


def bad_gateway(request: httpx.Request) -> httpx.Response:
    return httpx.Response(502, html="<h1>Bad Gateway</h1>")


def lost(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadTimeout("no answer", request=request)


@pytest.mark.parametrize("failing", [None, unavailable, bad_gateway, lost])
def test_a_publish_goes_to_the_next_server_and_stays_there(failing: Any) -> None:
    """A server that failed once is not asked again while another one answers."""
    cluster = Servers(failing, "one", "two")
    with Producer(URLS, "orders", "shop", connection=cluster.connection, **SHOP) as producer:
        for number in range(5):
            producer.publish({"order": number}, message_id=f"m-{number}")
    assert cluster.broker.published == {f"m-{number}" for number in range(5)}
    assert (cluster.asked["one"], cluster.asked["two"]) == (1, 1)


@pytest.mark.parametrize("failing", [unavailable, bad_gateway])
def test_an_asynchronous_producer_leaves_a_server_whose_proxy_answers(failing: Any) -> None:
    cluster = Servers(failing, "one")
    asyncio.run(_publish_async(cluster))
    assert (cluster.broker.published, cluster.asked["one"]) == ({"m-1"}, 1)


async def _publish_async(cluster: Servers) -> None:
    producer = AsyncProducer(URLS, "orders", "shop", connection=cluster.connection, **SHOP)
    async with producer:
        await producer.publish({"order": 1}, message_id="m-1")


def test_an_asynchronous_producer_goes_to_the_next_server() -> None:
    cluster = Servers(None, "one")
    asyncio.run(_publish_async(cluster))
    assert cluster.broker.published == {"m-1"}
    assert cluster.asked["one"] == 1


def test_a_server_that_came_back_is_used_when_the_others_fail() -> None:
    cluster = Servers(None, "one")
    urls = URLS[:2]
    with Producer(urls, "orders", "shop", connection=cluster.connection, **SHOP) as producer:
        producer.publish("a", message_id="a")
        cluster.down = {"two"}
        producer.publish("b", message_id="b")
    assert cluster.broker.published == {"a", "b"}


def test_the_last_error_is_raised_if_every_server_fails() -> None:
    cluster = Servers(None, "one", "two", "three")
    connection = cluster.connection
    with (
        Producer(URLS, "orders", "shop", connection=connection, timeout=0.5, **SHOP) as producer,
        pytest.raises(Unreachable),
    ):
        producer.publish("a")
    assert not cluster.broker.published


def test_no_server_at_all_is_a_clear_error() -> None:
    with pytest.raises(ConfigurationError, match="at least one URL"):
        Producer([], "orders", "shop", **SHOP)


@pytest.mark.parametrize("line", range(1, 4))
def test_two_threads_leave_a_failed_server_for_the_same_next_one(line: int) -> None:
    """Two threads that leave one server both go to the next, whichever line one interrupts."""
    servers = sending.Servers(URLS, str)
    failed, lines = servers.current, count(1)

    def overtake(frame: FrameType, event: str, _value: Any) -> Any:
        if frame.f_code is not sending.Servers.leave.__code__:
            return None
        if event == "line" and next(lines) == line:
            servers.leave(failed)
        return overtake

    before = sys.gettrace()
    sys.settrace(overtake)
    servers.leave(failed)
    sys.settrace(before)
    assert servers.current == "http://two"


FORKING = """
import os, sys
from pulljobs.client import Producer

tokens = {"channel_token": "orders-token", "producer_token": "shop-token"}
producer = Producer(sys.argv[1], "orders", "shop", **tokens)
producer.publish("before", message_id="before")
if child := os.fork():
    status = os.waitpid(child, 0)[1]
    producer.publish("parent", message_id="parent")
    sys.exit(os.waitstatus_to_exitcode(status))
producer.publish("child", message_id="child")
"""
"""Program that publishes, forks, and publishes in both processes."""


@contextmanager
def listening(broker: FakeBroker, ports: list[int]) -> Iterator[str]:
    """Serve a broker on a socket and yield its URL. `ports` gets the client's for each request."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # which keeps connections open

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            ports.append(self.client_address[1])
            sent = httpx.Request(
                "POST", f"{url}{self.path}", content=body, headers=dict(self.headers)
            )
            answer = broker.answer(sent).read()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: Any) -> None:
            """Log nothing to stderr."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield url
    finally:
        server.shutdown()
        server.server_close()


def test_a_forked_process_has_connections_of_its_own() -> None:
    """A forked process opens a connection: on a shared one it could get its parent's answers."""
    broker, ports = FakeBroker(), list[int]()
    with listening(broker, ports) as url:
        program = [sys.executable, "-c", FORKING, url]
        subprocess.run(program, cwd=BASE_DIR, check=True, timeout=PATIENCE_SECONDS)
    before, child, parent = ports
    assert before == parent != child
    assert broker.published == {"before", "child", "parent"}
