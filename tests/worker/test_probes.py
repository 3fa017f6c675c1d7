"""The health port is open to whoever reaches it: nobody keeps more than a little of the worker."""

import logging
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from pulljobs.worker import probes
from pulljobs.worker.probes import Probes
from tests.sessions import wait_until

Address = tuple[str, int]


@pytest.fixture
def address(caplog: pytest.LogCaptureFixture) -> Iterator[Address]:
    with caplog.at_level(logging.INFO), Probes(("127.0.0.1", 0), list):
        [port] = re.findall(r":(\d+)/livez", caplog.text)
        yield "127.0.0.1", int(port)


def is_answered(address: Address) -> bool:
    with socket.create_connection(address, 10) as asking:
        try:
            asking.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
            return b" 200 " in asking.recv(100)
        except ConnectionError:
            return False


def test_who_only_connects_keeps_nobody_from_an_answer_and_few_threads(address: Address) -> None:
    with ExitStack() as stack:
        threads = threading.active_count()
        for _ in range(3 * probes.LIMIT):
            stack.enter_context(socket.create_connection(address))
        assert is_answered(address)
        assert threading.active_count() - threads <= probes.LIMIT


def test_a_request_that_drips_is_cut_off(address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "PATIENCE", 0.2)
    with socket.create_connection(address) as dripping:
        dripping.settimeout(0.05)

        def is_over() -> bool:
            try:
                dripping.send(b"a")
                dripping.recv(100)
            except TimeoutError:
                return False
            except ConnectionError:
                return True
            return True

        wait_until(is_over, 10)
