"""Handlers, callbacks and brokers that break a thread or a task of the client: it goes on."""

import asyncio
import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socket import create_server
from typing import Any

import httpx
import pytest

from pulljobs.client import (
    Connection,
    Discard,
    Message,
    PullConsumer,
    Unreachable,
    sending,
)
from pulljobs.client.broker import Broker
from pulljobs.client.calls import Call, Flow
from pulljobs.client.sending import AsyncSender, Sender
from tests.client.broker import FakeBroker
from tests.client.names import SUBSCRIPTION
from tests.client.test_flow import ENDS, OFF, consumer_of, filled, is_done, of_kind, running
from tests.sessions import wait_until


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


class UnprintableReason:
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize("handles", ["plain", "async"])
@pytest.mark.parametrize("error", [*ENDS, Unprintable])
def test_no_exception_of_a_handler_ends_a_thread_or_a_task(
    error: type[BaseException], handles: str
) -> None:
    """The job is retried, and the only thread goes on to do the other jobs."""
    broker = filled(3)

    def handle(message: Message) -> None:
        if message.attempts == 1:
            raise error

    consumer, _ = consumer_of(
        [broker], of_kind(handles, handle), requeue_delay=lambda attempts: 0.0, backoff=OFF
    )
    with running(consumer):
        wait_until(lambda: is_done(broker))
    assert [job.retry_count for job in broker.jobs] == [1, 1, 1]


@pytest.mark.parametrize("handles", ["plain", "async"])
def test_no_exception_of_a_requeue_delay_ends_a_thread_or_a_task(handles: str) -> None:
    broker = filled(3)

    def handle(message: Message) -> None:
        if message.attempts == 1:
            raise ValueError("broken")

    def delay(attempts: int) -> float:
        raise SystemExit(1)

    consumer, _ = consumer_of([broker], of_kind(handles, handle), requeue_delay=delay, backoff=OFF)
    with running(consumer):
        wait_until(lambda: is_done(broker))


@pytest.mark.parametrize("handles", ["plain", "async"])
def test_a_reason_that_is_no_text_holds_up_no_other_outcome(handles: str) -> None:
    broker = filled(3)

    def handle(message: Message) -> None:
        if message.id == "j0":
            raise Discard(UnprintableReason())  # type: ignore[arg-type]  # a mistake of the user

    consumer, _ = consumer_of([broker], of_kind(handles, handle), backoff=OFF)
    with running(consumer):
        wait_until(lambda: broker.states() == ["DEAD", "DELIVERED", "DELIVERED"])


def test_an_exception_from_outside_ends_no_thread() -> None:
    """Messages are handled even after an exception is raised in a handler thread from outside."""
    broker = FakeBroker()
    threads: list[int] = []

    def handle(message: Message) -> None:
        threads.append(threading.get_ident())

    consumer, _ = consumer_of([broker], handle, backoff=OFF)
    with running(consumer):
        for number in range(5):
            broker.publish(1, start=number)
            wait_until(lambda: is_done(broker) and len(broker.jobs) == number + 1)  # noqa: B023
            wait_until(lambda: consumer.held == 0)
            raise_in(threads[-1], SystemExit)
    assert len(threads) >= 5


@pytest.mark.parametrize("handles", ["plain", "async"])
def test_a_job_that_has_not_begun_is_released_without_a_reason(
    handles: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release has no reason, with which the job would count as run and cost a token."""
    broker, failed = filled(1), list[Any]()

    def begin(self: Broker, message: Any) -> bool:
        if not failed:
            failed.append(message)
            raise MemoryError
        return begun(self, message)

    begun = Broker.begin
    monkeypatch.setattr(Broker, "begin", begin)
    consumer, _ = consumer_of([broker], of_kind(handles, lambda message: None), backoff=OFF)
    with running(consumer):
        wait_until(lambda: is_done(broker))
    [released, delivered] = [item for ack in broker.asked("ack") for item in ack.body["Results"]]
    assert (released["Outcome"], delivered["Outcome"]) == ("RELEASE", "DELIVERED")
    assert "Reason" not in released


def raise_in(thread: int, error: type[BaseException]) -> None:
    raised = ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), ctypes.py_object(error)
    )
    assert raised == 1


@pytest.mark.parametrize("limits", [{"MaxBatch": "many"}, {"Now": "today"}])
def test_the_defaults_apply_if_limits_cannot_be_read(limits: dict[str, Any]) -> None:
    broker = filled(2)
    consumer, _ = consumer_of([broker], lambda message: None)
    broker.failing = lambda request: (
        httpx.Response(200, json=limits) if request.path.endswith("/info") else None
    )
    with running(consumer):
        wait_until(lambda: is_done(broker))
    broker.publish(1, start=2)
    connection = Connection(transport=httpx.MockTransport(broker.answer))
    with PullConsumer("http://b0", SUBSCRIPTION, connection=connection) as puller:
        assert len(puller.fetch(1)) == 1


@contextmanager
def trickling() -> Iterator[str]:
    """Serve an answer without an end, one byte every 50 ms. Yield the URL."""
    done = threading.Event()
    server = create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _address = server.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while not done.wait(0.05):
                try:
                    connection.sendall(b"x")
                except OSError:
                    return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        done.set()
        thread.join()
        server.close()


def send_async(url: str, call: Call) -> None:
    async def sent() -> None:
        sender = AsyncSender(url, {}, Connection())
        try:
            await sender.send(call)
        finally:
            await sender.close()

    asyncio.run(sent())


def send(url: str, call: Call) -> None:
    def ask() -> Flow[None]:
        yield call

    sender = Sender(url, {}, Connection())
    try:
        sender.run(ask())
    finally:
        sender.close()


@pytest.mark.parametrize("how", ["sync", "async"])
def test_an_answer_that_trickles_is_given_up(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client gives up an answer whose bytes come in time, but which takes too long in all."""
    monkeypatch.setattr(sending, "TRANSFER_SECONDS", 0.5)
    call = Call("GET", "info", b"", 0.5)
    with trickling() as url, pytest.raises(Unreachable):
        send_async(url, call) if how == "async" else send(url, call)
