"""A delivery as its receiver sees it, and bounded whatever the receiver does."""

import asyncio
import socket
import struct
import threading
import time
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpcore
import pytest
from django.test import override_settings

from pulljobs import ids
from pulljobs.models import Consumer
from pulljobs.signing import verify
from pulljobs.webhooks import delivery
from pulljobs.webhooks.addresses import Guard
from pulljobs.webhooks.delivery import PushSender
from pulljobs.webhooks.network import RESOLVERS, GuardedNetwork
from pulljobs.webhooks.requests import NoEndpoint, endpoint_of, headers_of
from tests.sessions import PATIENCE_SECONDS, wait_until
from tests.webhooks.conftest import Opened
from tests.webhooks.endpoint import OK, Received, Writer, answering, slow
from tests.webhooks.sending import JOB_ID, LIMITS, TOKEN, consumer_at, job_of, refusal, send

SECOND = timedelta(seconds=1)
ENDLESS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_request_is_that_of_the_protocol(endpoint: Opened) -> None:
    there = endpoint()
    job = job_of(
        b"\x00\xff body", content_type="text/x-thing", headers={"X-Trace": "a", "B": "c d"}
    )
    assert send(consumer_at(f"{there.url}/a b?q=\u00e9"), job) == [None]
    [got] = there.received
    assert got.line == "POST /hook/a%20b?q=%C3%A9 HTTP/1.1"
    assert got.body == b"\x00\xff body"
    assert {name: value for name, value in got.headers if not name.startswith("webhook-")} == {
        "Host": f"127.0.0.1:{there.port}",
        "Content-Type": "text/x-thing",
        "Content-Length": "7",
        "User-Agent": "pulljobs",
        "Accept-Encoding": "identity",
        "X-Request-ID": f"{ids.encode(JOB_ID)}-2",
        "X-Broker-Message-ID": "order-1",
        "X-Broker-Message-Priority": "7",
        "X-Broker-Channel-ID": "orders",
        "X-Broker-Consumer-ID": "invoicing",
        "X-Broker-Consumer-Token": TOKEN,
        "X-Broker-Metadata-Headers": "B,X-Trace",
        "X-Trace": "a",
        "B": "c d",
    }


def test_names_of_ours_are_settings(endpoint: Opened) -> None:
    """Settings give the name of the token's header and the user agent."""
    there = endpoint()
    send(consumer_at(there.url), PUSH_TOKEN_HEADER="X-Secret", PUSH_USER_AGENT="shop/1")
    [got] = there.received
    assert got.header("X-Secret") == TOKEN
    assert got.header("X-Broker-Consumer-Token") is None
    assert got.header("User-Agent") == "shop/1"


def test_signature_is_verified_by_each_secret_in_use(endpoint: Opened) -> None:
    there = endpoint()
    consumer = consumer_at(there.url)
    secrets = [consumer.set_signing_secret() for _ in range(3)]
    send(consumer, job_of(), job_of())
    for got in there.received:
        assert verify(secrets[2], dict(got.headers), got.body) == ids.encode(JOB_ID)
        assert verify(secrets[1], dict(got.headers), got.body)
        with pytest.raises(ValueError, match="No signature"):
            verify(secrets[0], dict(got.headers), got.body)


def test_without_a_secret_nothing_is_signed(endpoint: Opened) -> None:
    there = endpoint()
    send(consumer_at(there.url))
    assert there.received[0].header("webhook-signature") is None


def test_a_message_speaks_neither_for_the_connection_nor_for_us(endpoint: Opened) -> None:
    there = endpoint()
    headers = {
        "Host": "evil",
        "content-length": "0",
        "Transfer-Encoding": "chunked",
        "Connection": "close",
        "x-broker-consumer-token": "forged",
        "X-Broker-Channel-ID": "forged",
        "webhook-id": "forged",
        "Authorization": "forged",
        "X Bad": "name",
        "X-Line": "a\r\nX-Smuggled: b\x00",
        "X-Word": "\u00e9",
    }
    assert send(consumer_at(there.url), job_of(headers=headers)) == [None]
    [got] = there.received
    assert got.header("X-Line") == "a X-Smuggled: b"
    assert got.header("X-Word") == "\u00e9".encode().decode("latin-1")
    assert got.header("X-Broker-Metadata-Headers") == "X-Line,X-Word"
    assert "forged" not in str(got.headers)
    assert len(got.headers) == len({name.lower() for name, _value in got.headers})


@pytest.mark.parametrize(
    "name",
    [
        "Forwarded",
        "X-Forwarded-For",
        "X-Forwarded-Proto",
        "x_forwarded_host",
        "X-Real-IP",
        "X-Client-IP",
        "True-Client-IP",
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-HTTP-Method-Override",
        "X-Method-Override",
        "Via",
        "Origin",
        "Set-Cookie",
        "Proxy_Authorization",
        "X_Broker_Channel_ID",
        "X_Secret",
    ],
)
def test_a_message_speaks_neither_for_a_proxy_nor_for_another_request(name: str) -> None:
    """Headers with a meaning for proxies or servers are not sent, also with underscores."""
    limits = replace(LIMITS, PUSH_TOKEN_HEADER="X-Secret")
    job = job_of(headers={name: "forged", "X-Own": "a"})
    sent = dict(headers_of(job, endpoint_of(consumer_at("http://a/")), limits))
    assert b"forged" not in sent.values()
    assert sent[b"X-Broker-Metadata-Headers"] == b"X-Own"


def test_nothing_is_sent_without_its_signature(endpoint: Opened) -> None:
    """A job is not delivered if the signing secret of its consumer can't be decrypted."""
    there = endpoint()
    with override_settings(SECRET_KEY="older"):
        consumer = consumer_at(there.url)
        consumer.set_signing_secret()
    with pytest.raises(NoEndpoint, match="signing secret cannot be decrypted"):
        send(consumer)
    assert there.received == []


@pytest.mark.parametrize(
    "secret",
    [
        f"bad token {TOKEN}",
        "bad login dXNAZXI6cGE6c3M=",
        "us@er is not known",
        "no such password: pa:ss",
        "no such path: /hook?q=a1b2c3",
        "no such session: 7f3d",
    ],
)
def test_credentials_are_not_quoted(endpoint: Opened, secret: str) -> None:
    """Errors quote no answer with credentials of the consumer, the URL or the message's headers."""
    error = refusal(_guarded(endpoint(answering(_refusing(secret))).url), JOB).reason
    assert error == "HTTP 400 Bad Request"


def test_the_trace_may_be_quoted(endpoint: Opened) -> None:
    """An answer with the `traceparent` of the request is quoted, so that it can be traced."""
    trace = JOB.headers["Traceparent"]
    error = refusal(_guarded(endpoint(answering(_refusing(trace))).url), JOB).reason
    assert error == f"HTTP 400 Bad Request: {trace}"


JOB = job_of(
    headers={
        "X-Session": "7f3d",
        "Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
)


def _guarded(url: str) -> Consumer:
    return consumer_at(url.replace("http://", "http://us%40er:pa:ss@") + "?q=a1b2c3")


def _refusing(body: str) -> bytes:
    head = f"HTTP/1.1 400 Bad Request\r\nContent-Length: {len(body)}\r\n\r\n"
    return f"{head}{body}".encode()


def test_login_of_the_url_is_sent_as_such(endpoint: Opened) -> None:
    there = endpoint()
    send(consumer_at(there.url.replace("http://", "http://us%40er:pa:ss@")))
    assert there.received[0].header("Authorization") == "Basic dXNAZXI6cGE6c3M="


def test_connections_are_kept_and_used_again(endpoint: Opened) -> None:
    there = endpoint(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
    assert send(consumer_at(there.url), *[job_of() for _ in range(5)]) == [None] * 5
    assert {got.connection for got in there.received} == {0}


def test_a_kept_connection_that_was_closed_is_not_used(endpoint: Opened) -> None:
    closed: list[int] = []

    async def close(received: Received, writer: Writer) -> None:
        writer.write(OK)
        writer.close()
        await writer.wait_closed()
        closed.append(received.connection)

    there = endpoint(close)

    def is_closed(turn: int) -> bool:
        return len(closed) > turn

    async def send_three() -> None:
        sender = PushSender(LIMITS)
        try:
            for turn in range(3):
                await sender.send(endpoint_of(consumer_at(there.url)), job_of())
                await asyncio.to_thread(wait_until, partial(is_closed, turn))
        finally:
            await sender.close()

    asyncio.run(send_three())
    assert closed == [0, 1, 2]


KEEPALIVE_TIMER = "02"


def timers_of_connections_to(port: int) -> list[str]:
    """Return the kernel's timers of the sockets that are connected to a local port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [row[5].partition(":")[0] for row in rows if row[2] == f"0100007F:{port:04X}"]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs the kernel's list of sockets")
def test_an_idle_connection_whose_endpoint_falls_silent_ends(endpoint: Opened) -> None:
    there = endpoint()

    async def send_one() -> list[str]:
        sender = PushSender(LIMITS)
        try:
            await sender.send(endpoint_of(consumer_at(there.url)), job_of())
            return timers_of_connections_to(urlsplit(there.url).port or 0)
        finally:
            await sender.close()

    assert asyncio.run(send_one()) == [KEEPALIVE_TIMER]


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_delivers(endpoint: Opened, status: int) -> None:
    there = endpoint(answering(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status))
    assert send(consumer_at(there.url)) == [None]


@pytest.mark.parametrize("status", [300, 304, 400, 401, 404, 410, 418, 429, 500, 503, 599])
def test_anything_else_retries_and_says_why(endpoint: Opened, status: int) -> None:
    there = endpoint(answering(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status))
    retry = refusal(consumer_at(there.url))
    assert retry.reason.startswith(f"HTTP {status}")
    assert retry.after is None


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(endpoint: Opened, status: int) -> None:
    elsewhere = endpoint()
    answer = f"HTTP/1.1 {status} X\r\nLocation: {elsewhere.url}\r\nContent-Length: 0\r\n\r\n"
    retry = refusal(consumer_at(endpoint(answering(answer.encode())).url))
    assert "redirects are not followed" in retry.reason
    assert elsewhere.received == []


def test_answer_that_never_comes_ends_the_delivery(endpoint: Opened) -> None:
    begun = time.monotonic()
    retry = refusal(consumer_at(endpoint(slow(60)).url), PUSH_TIMEOUT=SECOND / 2)
    assert retry.reason == "no answer within 0.5 s"
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("payload", [b"answer", b"x" * 100_000], ids=["short", "long"])
def test_an_error_of_the_connection_is_reported_for_every_payload(
    endpoint: Opened, payload: bytes
) -> None:
    there = endpoint(slow(60))
    error = refusal(consumer_at(there.url), job_of(payload), PUSH_TIMEOUT=SECOND / 10).reason
    assert error == "no answer within 0.1 s"


def test_headers_that_drip_end_the_delivery(endpoint: Opened) -> None:
    """The timeout bounds all headers of an answer together, even if each byte comes soon enough."""

    async def drip(received: Received, writer: Writer) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1000:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.05)

    begun = time.monotonic()
    retry = refusal(consumer_at(endpoint(drip).url), PUSH_TIMEOUT=SECOND)
    assert "no answer" in retry.reason
    assert time.monotonic() - begun < 30


def test_endless_body_is_read_to_a_limit(endpoint: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """A 200 delivers, the rest of its body is not read, and the connection is not reused."""
    monkeypatch.setattr(delivery, "BODY_SECONDS", 60)
    sent = [0]

    async def endless(received: Received, writer: Writer) -> None:
        writer.write(ENDLESS)
        while True:
            writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
            await writer.drain()
            sent[0] += 4096

    there = endpoint(endless)
    begun = time.monotonic()
    assert (
        send(consumer_at(there.url), job_of(), job_of(), PUSH_MAX_ANSWER_BYTES=10_000) == [None] * 2
    )
    assert time.monotonic() - begun < 30
    assert {got.connection for got in there.received} == {0, 1}
    assert sent[0] < 20_000_000  # what sockets buffer, not what there is


def test_body_that_drips_is_not_waited_for(endpoint: Opened) -> None:
    async def drip(received: Received, writer: Writer) -> None:
        writer.write(ENDLESS)
        while True:
            writer.write(b"1\r\nx\r\n")
            await writer.drain()
            await asyncio.sleep(0.05)

    begun = time.monotonic()
    assert send(consumer_at(endpoint(drip).url)) == [None]
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 banana\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_http_retries(endpoint: Opened, answer: bytes) -> None:
    assert refusal(consumer_at(endpoint(answering(answer)).url)).reason.startswith("no ")


def test_an_answer_that_is_no_http_is_quoted_unless_it_echoes_the_request(endpoint: Opened) -> None:
    there = endpoint(answering(b"4111 1111 1111 1111\r\n\r\n"))
    assert "4111" in refusal(consumer_at(there.url)).reason
    job = job_of(b'{"card": "4111111111111111"}')
    assert refusal(consumer_at(there.url), job).reason == "no HTTP answer"


def test_connection_that_closes_without_a_word_retries(endpoint: Opened) -> None:
    async def close(received: Received, writer: Writer) -> None:
        writer.close()

    assert "no HTTP answer" in refusal(consumer_at(endpoint(close).url)).reason


def test_a_connection_that_is_reset_is_not_called_missing(endpoint: Opened) -> None:
    """The error is "no answer", not "no connection": the endpoint may have done the work."""

    async def reset(received: Received, writer: Writer) -> None:
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    reason = refusal(consumer_at(endpoint(reset).url)).reason
    assert reason == "no answer: the connection broke off"


def test_a_port_without_a_listener_is_a_retry() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]  # reserved here, so that no other process listens there
        error = refusal(consumer_at(f"http://127.0.0.1:{port}/"))
    assert error.reason.startswith("no connection")


def test_who_does_not_accept_ends_the_delivery() -> None:
    """A delivery to a server that accepts no connection ends after PUSH_CONNECT_TIMEOUT."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        callers = [socket.socket() for _ in range(4)]
        for caller in callers:
            caller.setblocking(False)
            caller.connect_ex(("127.0.0.1", port))
        retry = refusal(consumer_at(f"http://127.0.0.1:{port}/"), PUSH_CONNECT_TIMEOUT=SECOND / 2)
        for caller in callers:
            caller.close()
    assert "not connected within 0.5 s" in retry.reason


def test_a_port_that_does_not_speak_TLS_is_named() -> None:
    """The error names TLS if a server, such as one of plain HTTP, does not answer the greeting."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
        retry = refusal(consumer_at(url), PUSH_CONNECT_TIMEOUT=SECOND / 2)
    assert retry.reason.startswith("no connection: TLS took longer than")


def test_proxies_of_the_environment_are_not_used(
    endpoint: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, there = endpoint(), endpoint()
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy.url)
    monkeypatch.delenv("no_proxy", raising=False)
    assert send(consumer_at(there.url)) == [None]
    assert (len(proxy.received), len(there.received)) == (0, 1)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://a/",
        "mailto:x",
        "http://",
        "http:///path",
        "//host/",
        "http://a:99999/",
        "http://[::1",
    ],
)
def test_a_url_that_leads_nowhere_is_reported(url: str) -> None:
    with pytest.raises(ValueError, match="callback URL"):
        send(consumer_at(url))


@pytest.mark.parametrize("url", ["http://us:pa/ss@host/", "http://us:pa@ho\u2100st/"])
def test_the_login_of_a_url_that_leads_nowhere_is_not_quoted(url: str) -> None:
    with pytest.raises(NoEndpoint) as raised:
        endpoint_of(consumer_at(url))
    assert "pa" not in str(raised.value)


def hosts_of(answers: dict[str, list[str]], asked: list[str]) -> Any:
    """Return a replacement of `getaddrinfo` that gives the answers of each host in turn."""

    def getaddrinfo(host: str, port: int | None, *args: Any, **kwargs: Any) -> list[Any]:
        asked.append(host)
        left = answers[host]
        address = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    return getaddrinfo


def test_a_name_is_looked_up_once_and_what_was_checked_is_connected_to(
    endpoint: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery connects to the address that the guard has checked, without another look-up."""
    there = endpoint()
    asked: list[str] = []
    answers = {"shop.example": ["127.0.0.1", "127.0.0.2"]}
    monkeypatch.setattr(socket, "getaddrinfo", hosts_of(answers, asked))
    consumer = consumer_at(f"http://shop.example:{there.port}/hook")
    assert send(consumer) == [None]
    assert asked == ["shop.example"]
    assert there.received[0].header("Host") == f"shop.example:{there.port}"
    assert "not public" in refusal(consumer).reason


def test_name_server_that_hangs_holds_up_only_its_own_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While a look-up hangs, other names connect. Its answer serves all that still wait for it."""
    may_answer, asked = threading.Event(), list[str]()
    lookups = hosts_of({"slow.example": ["127.0.0.1"], "shop.example": ["127.0.0.1"]}, asked)

    def getaddrinfo(host: str, *args: Any, **kwargs: Any) -> Any:
        answer = lookups(host, *args, **kwargs)
        assert host != "slow.example" or may_answer.wait(PATIENCE_SECONDS)
        return answer

    async def connect_all(port: int) -> None:
        network = GuardedNetwork(Guard(["127.0.0.1/32"]), ())
        waiting = [
            asyncio.create_task(network.connect_tcp("slow.example", port, PATIENCE_SECONDS))
            for _waiter in range(RESOLVERS + 1)
        ]
        await asyncio.sleep(0)
        with pytest.raises(httpcore.ConnectTimeout):
            await network.connect_tcp("slow.example", port, 0.01)
        streams = [await network.connect_tcp("shop.example", port, 10)]
        assert asked == ["slow.example", "shop.example"]
        may_answer.set()
        streams += await asyncio.gather(*waiting)
        streams.append(await network.connect_tcp("slow.example", port, 10))
        assert asked.count("slow.example") == 2, "it is remembered for those who waited"
        for stream in streams:
            await stream.aclose()
        network.close()

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with socket.create_server(("127.0.0.1", 0)) as there:
        try:
            asyncio.run(connect_all(there.getsockname()[1]))
        finally:
            may_answer.set()


@pytest.mark.parametrize(
    "host", ["127.0.0.2", "[::1]", "localhost", "0x7f000002", "127.2", "[::ffff:7f00:2]"]
)
def test_private_addresses_are_refused_by_any_name(endpoint: Opened, host: str) -> None:
    """Loopback is refused in every notation if only the private network 10.0.0.0/8 is allowed."""
    there = endpoint(host="127.0.0.2")
    retry = refusal(
        consumer_at(f"http://{host}:{there.port}/"), PUSH_ALLOWED_NETWORKS=["10.0.0.0/8"]
    )
    assert retry.reason.startswith("not delivered: its address is not public")
    assert "127.0.0" not in retry.reason
    assert there.received == []


def test_only_the_ports_of_the_setting_are_delivered_to(endpoint: Opened) -> None:
    there = endpoint()
    assert "port" in refusal(consumer_at(there.url), PUSH_PORTS=[80, 443]).reason
    assert send(consumer_at(there.url), PUSH_PORTS=[there.port]) == [None]
