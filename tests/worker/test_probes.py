"""Server of health probes: a client that reaches its port cannot use up the worker."""

import logging
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection

import pytest

from pulljobs.worker import probes
from pulljobs.worker.probes import ChildHealth, ProbeServer
from tests.sessions import wait_until

Address = tuple[str, int]
Look = Callable[[], list[ChildHealth]]


@pytest.fixture
def look() -> Look:
    return list


@pytest.fixture
def address(caplog: pytest.LogCaptureFixture, look: Look) -> Iterator[Address]:
    with caplog.at_level(logging.INFO), ProbeServer(("127.0.0.1", 0), look):
        [port] = re.findall(r":(\d+)/livez", caplog.text)
        yield "127.0.0.1", int(port)


def is_answered(address: Address) -> bool:
    with socket.create_connection(address, 10) as client:
        try:
            client.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
            return b" 200 " in client.recv(100)
        except ConnectionError:
            return False


def test_idle_connections_neither_block_answers_nor_keep_many_threads(address: Address) -> None:
    with ExitStack() as stack:
        threads = threading.active_count()
        for _ in range(3 * probes.MAX_CONNECTIONS):
            stack.enter_context(socket.create_connection(address))
        assert is_answered(address)
        assert threading.active_count() - threads <= probes.MAX_CONNECTIONS


@pytest.mark.parametrize(("path", "status"), [("/livez", 200), ("/nowhere", 404)])
def test_a_request_for_the_head_gets_no_body(path: str, status: int, address: Address) -> None:
    connection = HTTPConnection(*address, timeout=10)
    connection.request("HEAD", path)
    answer = connection.getresponse()
    assert (answer.status, int(answer.headers["Content-Length"]) > 0) == (status, True)
    assert answer.read() == b""


def test_a_request_that_arrives_byte_by_byte_is_cut_off(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "PATIENCE", 0.2)
    with socket.create_connection(address) as dripping:
        dripping.settimeout(0.05)

        def is_closed() -> bool:
            try:
                dripping.send(b"a")
                dripping.recv(100)
            except TimeoutError:
                return False
            except ConnectionError:
                return True
            return True

        wait_until(is_closed, 10)


def test_a_probe_for_which_no_thread_starts_costs_a_line_of_the_log(
    address: Address, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert not is_answered(address)
    assert is_answered(address)
    assert caplog.messages[-1] == "A probe got no answer: can't start new thread"


def fail() -> list[ChildHealth]:
    raise KeyError("rows")


@pytest.mark.parametrize("look", [fail])
def test_an_error_in_an_answer_leaves_a_traceback(
    address: Address, capsys: pytest.CaptureFixture[str]
) -> None:
    """Metrics that handlers define may fail, and their text alone does not say where."""
    assert not is_answered(address)
    assert "KeyError: 'rows'" in (printed := capsys.readouterr().err)
    assert "in fail" in printed
