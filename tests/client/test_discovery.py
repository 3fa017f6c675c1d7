"""Lookups that hang, and brokers that lookups named and that are gone since."""

import asyncio

import httpx
import pytest

from pulljobs.client import Connection, Consumer, Message, NotFound, broker
from tests.client.broker import FakeBroker, Request
from tests.client.names import SUBSCRIPTION
from tests.client.test_flow import (
    SOON,
    Brokers,
    consumer_of,
    filled,
    is_done,
    nothing,
    running,
)
from tests.sessions import Thread, wait_until

SECONDS = 20
TASKS = ("pulls", "outcomes", "locked outcomes", "leases", "renewals", "lookups")
"""Tasks of a session with one broker."""


class SilentLookup(Brokers):
    """Transport to brokers, the first of which never answers a lookup."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/lookup" and request.url.host == "b0":
            await asyncio.Event().wait()
        return await super().handle_async_request(request)


def test_a_lookup_that_hangs_delays_no_other() -> None:
    """The brokers that one lookup returns are used while another lookup does not answer."""
    brokers = [FakeBroker(), filled(2)]
    brokers[1].addresses = ["http://b1"]
    consumer = Consumer(
        nothing,
        subscription=SUBSCRIPTION,
        lookup_urls=["http://b0", "http://b1"],
        connection=Connection(transport=SilentLookup(brokers)),
    )
    with running(consumer):
        wait_until(lambda: is_done(brokers[1]), SECONDS)


@pytest.mark.parametrize(
    "foreign",
    [
        httpx.Response(404, html="<h1>Nothing here</h1>"),
        httpx.Response(405, text="Method not allowed"),
        httpx.Response(200, html="<h1>Welcome</h1>"),
        httpx.Response(301, headers={"Location": "https://elsewhere.example/"}),
        httpx.Response(500, text="oops"),
    ],
)
def test_an_address_that_is_no_broker_any_more_ends_no_run(
    foreign: httpx.Response, caplog: pytest.LogCaptureFixture
) -> None:
    """A run goes on with other brokers if an address of a lookup does not answer like a broker."""
    brokers = [FakeBroker(), filled(3)]
    brokers[1].limits = {"MaxExpires": 0.5}  # Its long poll takes all the room while it is alone.
    brokers[0].addresses = ["http://b0", "http://b1"]
    brokers[0].failing = lambda request: None if request.path == "/lookup" else foreign
    options = {"lookup_urls": ["http://b0"], "lookup_interval": SOON, "max_in_flight": 2}
    consumer, _ = consumer_of(brokers, nothing, base_urls=(), **options)
    with running(consumer):
        wait_until(lambda: is_done(brokers[1]), SECONDS)
        brokers[0].failing = lambda request: None
        brokers[0].publish(1)
        wait_until(lambda: is_done(brokers[0]), SECONDS)
    assert "http://b0 is away" in caplog.text or "Lost http://b0" in caplog.text


def test_a_channel_that_a_discovered_broker_does_not_know_ends_the_run() -> None:
    """The run raises NotFound if a discovered broker answers that there is no such channel."""
    brokers = [FakeBroker()]
    brokers[0].addresses = ["http://b0"]
    unknown = httpx.Response(404, json={"detail": "no such channel", "code": "unknown_channel"})
    brokers[0].failing = lambda request: unknown if request.path.endswith("/pull") else None
    consumer, _ = consumer_of(brokers, nothing, base_urls=(), lookup_urls=["http://b0"])
    with pytest.raises(NotFound, match="no such channel"):
        Thread(consumer.run).result()


def away(request: Request) -> httpx.Response:
    return httpx.Response(503, json={"detail": "away"})


def back(request: Request) -> None:
    return None


def test_a_broker_that_no_lookup_brings_back_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tasks of a forgotten broker end, and it takes no room. A held message counts as lost."""
    monkeypatch.setattr(broker, "FORGOTTEN_AFTER", 0.5)
    brokers, begun = [filled(1), FakeBroker()], list[Message]()
    brokers[0].limits = {"LeaseSeconds": 0.5}
    brokers[1].addresses = ["http://b0", "http://b1"]

    def handle(message: Message) -> None:
        begun.append(message)
        if len(begun) == 1:
            brokers[0].failing, brokers[1].addresses = away, ["http://b1"]

    consumer, _ = consumer_of(
        brokers, handle, base_urls=(), lookup_urls=["http://b1"], lookup_interval=SOON
    )
    with running(consumer):
        wait_until(lambda: consumer.counts["lost"] == 1)
        session = consumer._session
        assert session is not None
        wait_until(lambda: list(session._brokers) == ["http://b1"])
        wait_until(lambda: len(session._tasks) == len(TASKS))
        assert (len(session.room.shares), consumer.held) == (1, 0)
        brokers[0].failing, brokers[1].addresses = back, ["http://b0", "http://b1"]
        wait_until(lambda: is_done(brokers[0]))
