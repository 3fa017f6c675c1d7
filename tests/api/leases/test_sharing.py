"""Requests that come together: each gets its own answer from statements that all of them share."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import pytest

from pulljobs import pulling
from pulljobs.api.leases.long_poll import threads, waiters
from pulljobs.models import ArchivedJob
from pulljobs.storage import protocol
from tests.api.caller import publish, subscription
from tests.api.leases.serving import LONG, Puller, outcome_of, wait_briefly
from tests.sessions import Thread


@contextmanager
def busy_threads() -> Iterator[threads.DatabaseThreads]:
    """Keep all threads that serve requests busy while the block runs."""
    running, over = waiters.running_waiters(), threading.Event()
    assert running is not None
    began = threading.Barrier(threads.THREADS + 1)

    def wait() -> None:
        began.wait(LONG)
        over.wait(LONG)

    for _ in range(threads.THREADS):
        running._threads.submit(wait)
    began.wait(LONG)
    try:
        yield running._threads
    finally:
        over.set()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the calls that find callers and settle jobs."""
    called: list[str] = []
    for module, name in ((protocol, "find_callers"), (pulling, "finish")):
        function = getattr(module, name)

        def counted(*args: Any, name: str = name, function: Any = function, **more: Any) -> Any:
            called.append(name)
            return function(*args, **more)

        monkeypatch.setattr(module, name, counted)
    return called


def test_requests_that_come_together_share_statements(
    client: httpx.Client, base: str, puller: Puller, calls: list[str]
) -> None:
    other, stranger = (Puller(client, base, subscription("invoices", name)) for name in "ab")
    stranger.tokens["X-Broker-Consumer-Token"] = "guessed"
    publish("orders"), publish("orders"), publish("invoices")
    [first], [second], [theirs] = puller.taken(), puller.taken(), other.taken()
    calls.clear()
    asked: list[tuple[Puller, bytes | None, dict[str, Any]]] = [
        (puller, None, {"Results": [outcome_of(first, "DELIVERED")]}),
        (puller, None, {"Results": [outcome_of(second, "RETRY"), outcome_of(theirs, "DEAD")]}),
        (other, None, {"Results": [outcome_of(theirs, "DELIVERED")]}),
        (other, None, {"Results": [outcome_of(first, "DEAD")]}),
        (stranger, None, {"Results": [outcome_of(theirs, "DEAD")]}),
        (puller, b"{", {}),
    ]
    answers = []
    with busy_threads() as database:
        for number, (sender, body, fields) in enumerate(asked, start=1):
            answers.append(Thread(partial(sender.post, "ack", body, **fields)))
            wait_briefly(partial(_have_arrived, database, number))
    reported = [_report_of(answer.result()) for answer in answers]
    assert reported == [
        ["ok"], ["ok", "not_found"], ["ok"], ["not_found"], "wrong_consumer_token", "bad_body",
    ]  # fmt: skip
    assert calls == ["find_callers", "finish"]
    assert ArchivedJob.objects.filter(state="DELIVERED").count() == 2


def _have_arrived(database: threads.DatabaseThreads, requests: int) -> bool:
    return len(database._arrived) == requests


def _report_of(answer: httpx.Response) -> Any:
    """Return the statuses of the items, or the code of a refusal."""
    content = answer.json()
    return content.get("code") or [result["Status"] for result in content["Results"]]
