"""Requests of the client, and the brokers that it trusts."""

import asyncio
import base64
import http.server
import ipaddress
import math
import re
import socket
import ssl
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from django.test import override_settings

import pulljobs.client
from pulljobs import errors
from pulljobs.api.gateway import check_signature
from pulljobs.client import (
    AsyncProducer,
    AsyncPullConsumer,
    Backoff,
    ClientError,
    Connection,
    Consumer,
    Producer,
    PullConsumer,
    Subscription,
    Unreachable,
    flows,
)
from pulljobs.client.connecting import GZIP_FROM
from pulljobs.client.strategies import RECONNECT, REQUEUE, exponential, full_jitter, linear, up_to
from pulljobs.errors import ConfigurationError, PulljobsError
from tests.client.broker import FakeBroker
from tests.client.names import SHOP, SUBSCRIPTION
from tests.sessions import Thread, wait_until

SECRET = base64.b64encode(b"shared by both sides").decode()


def certificate(directory: Path, name: str) -> tuple[str, str]:
    """Write a self-signed certificate for 127.0.0.1 and its key. Return the paths of both."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = directory / f"{name}.crt", directory / f"{name}.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(files[0]), str(files[1])


class Info(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "15")
        self.end_headers()
        self.wfile.write(b'{"NumQueued":3}')

    def log_message(self, *args: Any) -> None:
        """Log nothing to stderr."""


@contextmanager
def secured(server_files: tuple[str, str], trusted: str) -> Iterator[str]:
    """Serve a broker that requires a certificate of its clients. Yield its URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*server_files)
    context.load_verify_locations(trusted)
    context.verify_mode = ssl.CERT_REQUIRED
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Info)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *args: None  # type: ignore[method-assign]  # refused clients
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def fetch_info(url: str, connection: Connection) -> Any:
    with PullConsumer(url, SUBSCRIPTION, connection=connection) as consumer:
        return consumer._sender.run(flows.info(SUBSCRIPTION.path, 0.0)).json()


def test_TLS_is_verified_unless_turned_off(tmp_path: Path) -> None:
    """Each side needs a certificate that the other trusts, but verify=False trusts any server."""
    ours, theirs = certificate(tmp_path, "client"), certificate(tmp_path, "server")
    with secured(theirs, trusted=ours[0]) as url:
        for unverified in (
            Connection(),
            Connection(certificate=ours),
            Connection(ca_file=theirs[0]),
        ):
            with pytest.raises(Unreachable):
                fetch_info(url, unverified)
        both = Connection(ca_file=theirs[0], certificate=ours)
        assert fetch_info(url, both) == {"NumQueued": 3}
        assert fetch_info(url, Connection(verify=False, certificate=ours)) == {"NumQueued": 3}


@pytest.mark.parametrize("wrong", ["ca_file", "certificate"])
def test_files_of_certificates_that_can_not_be_used_are_named(wrong: str, tmp_path: Path) -> None:
    """The error names the files, because those of the module ssl name none."""
    missing = str(tmp_path / "missing.pem")
    given: Any = {wrong: missing if wrong == "ca_file" else (missing, missing)}
    with pytest.raises(ConfigurationError, match=r"missing\.pem.* cannot be used: .*No such file"):
        PullConsumer("https://b", SUBSCRIPTION, connection=Connection(**given))


def test_a_broker_has_a_url() -> None:
    """A text that is not an http or https URL with a valid host and port is refused."""
    wrong = ["http://[::1/", "http://broker:port", "http://broker:65536", "http://bro\nker"]
    wrong += ["http://broker:-1", "http://a..b", f"http://{'a' * 64}", "http://broker/\ud800"]
    for url in ("localhost:8000", "ftp://broker", "", "http://", "http://:80", *wrong):
        with pytest.raises(ConfigurationError, match="is no URL of a broker"):
            PullConsumer(url, SUBSCRIPTION)


@pytest.mark.parametrize("token", ["secret\n", " secret", "secr\0et", "geheim-ß"])
def test_a_token_that_HTTP_cannot_carry_is_refused_and_not_quoted(token: str) -> None:
    for make in (
        lambda: Subscription("orders", "census", token, "t"),
        lambda: Subscription("orders", "census", "t", token),
        lambda: Producer("http://b", "orders", "shop", channel_token=token, producer_token="t"),
        lambda: AsyncProducer(
            "http://b", "orders", "shop", channel_token="t", producer_token=token
        ),
    ):
        with pytest.raises(ConfigurationError, match="is not printable ASCII") as refused:
            make()
        assert "secr" not in str(refused.value)
        assert "geheim" not in str(refused.value)


SUBSCRIBED = partial(
    Subscription, channel="orders", consumer="census", channel_token="t", consumer_token="t"
)
PRODUCER = partial(Producer, base_url="http://b", channel="orders", producer="shop", **SHOP)
PULLER = partial(PullConsumer, base_url="http://b", subscription=SUBSCRIPTION)
CONSUMER = partial(Consumer, handler=print, base_urls="http://b", subscription=SUBSCRIPTION)
WRONG: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (SUBSCRIBED, {"channel_token": None}, "token of the channel must be text, not NoneType: look"),
    (SUBSCRIBED, {"consumer_token": b"secret"}, "token of the consumer must be text, not bytes"),
    (SUBSCRIBED, {"consumer": None}, "name of the consumer must be text, not None"),
    (SUBSCRIBED, {"channel": "a/b"}, "No channel has the name 'a/b': a name has no slash"),
    (SUBSCRIBED, {"consumer": ".."}, "No consumer has the name '..'"),
    (SUBSCRIBED, {"consumer": "a\0b"}, r"No consumer has the name 'a\x00b'"),
    (PRODUCER, {"channel": "\ud800"}, r"No channel has the name '\ud800'"),
    (PRODUCER, {"producer": 5}, "name of the producer must be text, not 5"),
    (PRODUCER, {"producer_token": None}, "token of the producer must be text"),
    (PRODUCER, {"timeout": timedelta(30)}, "timeout must be a number of seconds from 0 on"),
    (PULLER, {"base_url": None}, "'None' is no URL of a broker"),
    (PULLER, {"subscription": "orders/census"}, "Give a Subscription, not a str"),
    (CONSUMER, {"subscription": {}}, "Give a Subscription, not a dict"),
    (CONSUMER, {"handler": "print"}, "handler must be a function, not 'print'"),
    (CONSUMER, {"on_stop": "stop"}, "on_stop must be a function"),
    (CONSUMER, {"on_giving_up": 1}, "on_giving_up must be a function"),
    (CONSUMER, {"requeue_delay": 30}, "requeue_delay must be a function, not 30"),
    (CONSUMER, {"max_attempts": -1}, "max_attempts must be a whole number from 0 on, not -1"),
    (CONSUMER, {"max_in_flight": "5"}, "max_in_flight must be a whole number from 0 on, not '5'"),
    (CONSUMER, {"concurrency": 0}, "concurrency must be a whole number from 1 on, not 0"),
    (CONSUMER, {"graceful_timeout": timedelta(1)}, "graceful_timeout must be a number of seconds"),
    (CONSUMER, {"flush_interval": math.nan}, "flush_interval must be a number of seconds"),
    (CONSUMER, {"lookup_interval": "60"}, "lookup_interval must be a number of seconds"),
    (CONSUMER, {"lookup_interval": 0}, "lookup_interval must be a number of seconds above 0"),
    (CONSUMER, {"lookup_urls": "localhost"}, "'localhost' is no URL of a broker"),
    (CONSUMER, {"base_urls": ()}, "There is no broker to pull from"),
    (CONSUMER, {"backoff": 0}, "backoff must be a Backoff, not 0"),
    (Connection, {"gateway_secret": "not base64"}, "gateway_secret must be text in base64"),
    (Connection, {"gateway_secret": ""}, "gateway_secret must be text in base64"),
    (Backoff, {"initial": timedelta(1)}, "initial must be a number of seconds from 0 on"),
    (Backoff, {"longest": "60"}, "longest must be a number of seconds from 0 on"),
    (Backoff, {"after": 0}, "after must be a whole number from 1 on, not 0"),
    (Backoff, {"strategy": 2}, "strategy must be a function, not 2"),
]


@pytest.mark.parametrize(("make", "wrong", "message"), WRONG)
def test_a_wrong_argument_is_refused_before_any_request(
    make: Callable[..., Any], wrong: dict[str, Any], message: str
) -> None:
    """A wrong argument, such as None for a token, is refused when the object is made."""
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        make(**wrong)


@pytest.mark.parametrize("timeout", [math.nan, "1", None, timedelta(seconds=1)])
def test_a_fetch_refuses_a_timeout_that_is_no_number_of_seconds(timeout: Any) -> None:
    with PULLER() as puller, pytest.raises(ConfigurationError, match="timeout must be a number"):
        puller.fetch(1, timeout)


@pytest.mark.parametrize("limit", [-1, 1.5, True, "3", None])
def test_a_limit_of_held_messages_is_a_whole_number(limit: Any) -> None:
    consumer = CONSUMER()
    with pytest.raises(ConfigurationError, match="max_in_flight must be a whole number from 0 on"):
        consumer.set_max_in_flight(limit)
    assert consumer.max_in_flight == 1


def test_what_can_not_be_sent_is_neither_quoted_nor_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A header value that HTTP cannot carry is refused, and no error or log line contains it."""
    connection = Connection(worker_id="secret\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        consumer = Consumer(print, url, subscription=SUBSCRIPTION, connection=connection)
        puller = PullConsumer(url, SUBSCRIPTION, connection=connection)
        for use in (Thread(consumer.run).result, puller.next):
            with pytest.raises(ClientError, match="character that HTTP does not allow") as refused:
                use()
            assert "secret" not in "".join(traceback.format_exception(refused.value))
    assert "secret" not in caplog.text


def test_a_request_without_a_body_gets_none_by_compression() -> None:
    """A GET has no body even with `gzip_from=0`, because some proxies would refuse it."""
    sent = list[tuple[bytes, bool]]()

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append((request.content, "Content-Encoding" in request.headers))
        return httpx.Response(200, json={})

    connection = Connection(transport=httpx.MockTransport(answer), gzip_from=0)
    with PullConsumer("http://broker", SUBSCRIPTION, connection=connection) as consumer:
        consumer.info()
    assert sent == [(b"", False)]


@pytest.mark.parametrize("is_async", [False, True])
def test_requests_are_signed_for_a_gateway(is_async: bool) -> None:
    """The gateway signature of each request matches its body as sent, compressed or empty."""
    broker, sent = FakeBroker(), []

    def answer(request: httpx.Request) -> httpx.Response:
        check_signature(request.headers["X-Broker-Signature"], request.content)
        sent.append((request.method, "Content-Encoding" in request.headers))
        return broker.answer(request)

    connection = Connection(transport=httpx.MockTransport(answer), gateway_secret=SECRET)
    to: Any = AsyncProducer if is_async else Producer
    producer = to("http://broker", "orders", "shop", **SHOP, connection=connection)
    of: Any = AsyncPullConsumer if is_async else PullConsumer
    puller = of("http://broker", SUBSCRIPTION, connection=connection)

    async def use() -> None:
        for call in (lambda: producer.publish(b"x" * GZIP_FROM), puller.next, puller.info):
            if isinstance(result := call(), Awaitable):
                await result

    with override_settings(PULLJOBS={"GATEWAY_SECRETS": ["b2xk", SECRET]}):
        asyncio.run(use())
    assert sent == [("POST", True), ("GET", False), ("POST", False), ("GET", False)]


@pytest.mark.parametrize(
    ("foreign", "sentence"),
    [
        (httpx.Response(301, headers={"Location": "https://b/"}), "redirects to https://b/ "),
        (httpx.Response(404, html="<!DOCTYPE html>..."), "A page of HTML came with the status 404"),
        (httpx.Response(502, html="<html>Bad gateway"), "A page of HTML came with the status 502"),
        (httpx.Response(405, text="Method not allowed"), "Method not allowed"),
        (httpx.Response(405), "HTTP status 405."),
        (httpx.Response(400, json={"detail": "y" * 5_000_000}), "y" * 500),
        (httpx.Response(400, text="y" * 5_000_000), "y" * 500),
        (httpx.Response(302, headers={"Location": "y" * 50_000}), "y" * 500),
    ],
)
def test_an_answer_of_another_server_is_described(foreign: httpx.Response, sentence: str) -> None:
    """The error names the redirect, page or status that another server answered, without HTML."""
    connection = Connection(transport=httpx.MockTransport(lambda _request: foreign))
    producer = Producer("http://b", "orders", "shop", **SHOP, timeout=0, connection=connection)
    with producer, pytest.raises(ClientError, match=re.escape(sentence)) as raised:
        producer.publish("x")
    assert "<" not in str(raised.value)
    assert len(str(raised.value)) < 700


@pytest.mark.parametrize("kind", [PullConsumer, AsyncPullConsumer])
@pytest.mark.parametrize(
    ("proxy", "problem"),
    [("gopher://me:hush@proxy.example.com", "gopher"), ("http://me:hush/@proxy", "it is no URL")],
)
def test_a_proxy_that_cannot_be_used_is_named_without_its_password(
    proxy: str, problem: str, kind: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with pytest.raises(ConfigurationError, match="HTTP_PROXY, HTTPS_PROXY or ALL_PROXY") as refused:
        kind("http://broker.example.com", SUBSCRIPTION)
    assert (problem in str(refused.value), "hush" in str(refused.value)) == (True, False)


@pytest.mark.parametrize("kind", [PullConsumer, AsyncPullConsumer])
def test_no_proxy_gets_the_tokens_for_a_broker_on_this_machine(
    kind: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests to this machine bypass the proxy of the environment, which gets all others."""
    asked = list[str]()
    with recording(asked) as proxy, recording(asked) as broker:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        for host in (f"localhost:{broker}", f"127.0.0.1:{broker}", "broker.example.com"):
            ask_once(kind(f"http://{host}", SUBSCRIPTION))
    here = "/channel/orders/consumer/census/info"
    assert asked == [here, here, f"http://broker.example.com{here}"]


@contextmanager
def recording(asked: list[str]) -> Iterator[int]:
    """Serve on a port of 127.0.0.1, which it yields, note all targets, and answer with 503."""

    class Recorder(Info):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(503)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def ask_once(consumer: Any) -> None:
    async def ask() -> None:
        if isinstance(limits := consumer.limits(0), Awaitable):
            await limits

    with pytest.raises(Unreachable):
        asyncio.run(ask())


def test_the_login_in_a_url_is_in_no_log_line_and_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = FakeBroker(failing=lambda request: httpx.Response(503, text="away"))
    connection = Connection(transport=httpx.MockTransport(broker.answer_async))
    url = "http://me:hush@broker"
    with pytest.raises(ConfigurationError, match=r"//\*\*\*@b") as refused:
        Consumer(print, "ftp://me:hush@b", subscription=SUBSCRIPTION)
    assert "hush" not in str(refused.value)
    consumer = Consumer(
        print, url, lookup_urls=[url], subscription=SUBSCRIPTION, connection=connection
    )
    running = Thread(consumer.run)
    expected = ("http://***@broker is away", "Lookup at http://***@broker failed")
    wait_until(lambda: all(text in caplog.text for text in expected) or "hush" in caplog.text)
    consumer.stop()
    running.result()
    assert "hush" not in caplog.text


def test_tokens_and_secrets_are_in_no_repr() -> None:
    assert "token" not in repr(SUBSCRIPTION)
    assert SECRET not in repr(Connection(gateway_secret=SECRET))


def test_what_is_exported() -> None:
    """`__all__` is sorted and its names exist. It and the docstring of `errors` have all errors."""
    exported = {name: getattr(pulljobs.client, name) for name in pulljobs.client.__all__}
    assert sorted(exported) == pulljobs.client.__all__
    drawn = pulljobs.client.errors.__doc__ or ""
    ours = [
        cls
        for cls in vars(pulljobs.client.errors).values()
        if isinstance(cls, type) and issubclass(cls, PulljobsError)
    ]
    assert all(issubclass(error, ClientError) for error in ours)
    assert all(error.__name__ in drawn and exported[error.__name__] is error for error in ours)
    assert issubclass(pulljobs.client.LeaseLost, errors.LeaseLost)
    assert exported["Retry"] is errors.Retry


def test_strategies() -> None:
    """Each strategy returns the seconds to wait before the n-th repetition."""
    assert [REQUEUE(n) for n in (1, 2, 10, 11, 2000)] == [90, 180, 900, 900, 900]
    assert [linear(2, 5)(n) for n in (1, 2, 3)] == [2, 4, 5]
    assert [exponential(1, 60)(n) for n in (1, 2, 7, 5000)] == [1, 2, 60, 60]
    for n, longest in ((1, 2), (3, 8), (50, 60)):
        waits = [RECONNECT(n) for _ in range(300)]
        assert 1 <= min(waits) <= 1 + longest / 4
        assert longest * 0.75 <= max(waits) <= longest
    assert 0 <= min(up_to(8) for _ in range(50)) < max(up_to(8) for _ in range(50)) <= 8
    assert full_jitter(linear(0, 0), least=0.5)(1) == 0.5
