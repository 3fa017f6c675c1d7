"""Pulls work under ASGI with and without `with_pulls` or synchronous middleware, and under WSGI."""

import asyncio
import gc
import io
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from asgiref.sync import SyncToAsync, async_to_sync
from django.core.asgi import get_asgi_application
from django.core.management import call_command
from django.core.signals import request_finished, request_started
from django.db import OperationalError, connection
from django.http import HttpRequest, HttpResponseBase
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from pulljobs.api.asgi import SHARED, with_pulls
from pulljobs.api.leases.long_poll.queue import WaiterQueue
from pulljobs.api.middleware import RequestIdFilter
from pulljobs.conf import SETTING
from pulljobs.deployment_checks import check_middleware
from tests.api.caller import Subscription, publish
from tests.api.leases.serving import LONG, Puller, outcome_of, served, wait_briefly, waiting_pulls
from tests.sessions import wait_until

Passed = Callable[[HttpRequest], HttpResponseBase]
MIB = 1024 * 1024
MIDDLEWARE = f"{__name__}.synchronous_only"


def synchronous_only(get_response: Passed) -> Passed:
    """Return synchronous middleware, because of which Django runs each request on a thread."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        response["X-Passed"] = "yes"
        return response

    return answer


def pulls_linger(puller: Puller, waits: int = 3) -> list[httpx.Response]:
    """Start long polls, publish a job for each, and return their answers, which have a job each."""
    threads = [puller.long_poll() for _ in range(waits)]
    for _ in range(waits):
        publish()
    answers = [thread.result() for thread in threads]
    assert [len(answer.json()["Result"]) for answer in answers] == [1] * waits
    return answers


def test_answered_pulls_leave_nothing_to_the_garbage_collector(puller: Puller) -> None:
    """An answered pull leaves no Django objects in reference cycles, such as its request."""
    puller.pull()
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        puller.pull()
        gc.collect()
        left = {type(each) for each in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert {each.__name__ for each in left if each.__module__.startswith("django.")} == set()


def test_with_synchronous_middleware_pulls_work_and_a_check_names_it(
    settings: Settings, client: httpx.Client, census: Subscription, emptied: None
) -> None:
    """With synchronous middleware, pulls work and hang-ups are noticed, and check W005 warns."""
    del settings.ASGI_APPLICATION  # What startproject writes has none.
    assert check_middleware() == []
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    [warning] = check_middleware()
    assert (warning.id, MIDDLEWARE in warning.msg) == ("pulljobs.W005", True)
    with served() as base:
        puller = Puller(client, base, census)
        for answer in pulls_linger(puller):
            assert answer.headers["X-Passed"] == "yes"
        with puller.hung_up():
            pass
        wait_briefly(lambda: waiting_pulls() == 0)
    settings.ROOT_URLCONF = "django.contrib.auth.urls"
    assert check_middleware() == []


def test_the_log_names_it_too(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    """Servers log the name of synchronous middleware, because they run no checks at start."""

    async def application(scope: Any, receive: Any, send: Any) -> None: ...

    assert with_pulls(application) is not application
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    assert with_pulls(application) is application
    [record] = [record for record in caplog.records if record.name == "pulljobs.api"]
    assert MIDDLEWARE in record.getMessage()


def test_middleware_that_is_not_there_is_left_to_django(settings: Settings) -> None:
    """The check of middleware skips a class that cannot be imported."""
    settings.MIDDLEWARE = ["nowhere.ours", MIDDLEWARE]
    [warning] = check_middleware()
    assert MIDDLEWARE in warning.msg


def test_receivers_of_request_signals_have_a_thread(puller: Puller) -> None:
    """Receivers of request signals run on a thread, so that they can use the database."""
    heard_on: list[str] = []

    def hears(**arguments: object) -> None:
        connection.ensure_connection()
        connection.close()
        heard_on.append(threading.current_thread().name)

    with listening(hears):
        assert puller.pull()["Result"] == []
        wait_until(lambda: len(heard_on) == 2)


@contextmanager
def listening(hears: Callable[..., None]) -> Iterator[None]:
    signals = (request_started, request_finished)
    for signal in signals:
        signal.connect(hears)
    try:
        yield
    finally:
        for signal in signals:
            signal.disconnect(hears)


def test_a_body_that_no_route_takes_is_not_kept() -> None:
    """The application gets 8 MiB of a body without end. The server drops the rest."""
    chunk, kept = {"type": "http.request", "body": bytes(MIB), "more_body": True}, []
    sent = iter([*[chunk] * 20, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(sent)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        while (message := await receive())["type"] == "http.request":
            kept.append(message)

    scope = {"type": "http", "method": "POST", "path": "/channel/orders/consumer/census/ack"}
    async_to_sync(with_pulls(application))(scope, receive, None)
    assert [message["more_body"] for message in kept] == [True] * 8 + [False]


@pytest.mark.parametrize(
    ("method", "path", "is_one"),
    [
        ("POST", "/pull/jobs/channel/a/consumer/b/renew", True),
        ("POST", "/channel/consumer/consumer/message/pull", True),
        ("GET", "/channel/a/consumer/b/pull", False),
        ("POST", "/channel/a/consumer/b/pull-requests", False),
        ("POST", "/channel/a/consumer/b/pull\n", False),
        ("POST", "/channel/a/consumer/b/ack/all", False),
        ("GET", "/channel/x/message/channel/a/consumer/b/pull", False),
        ("POST", "/channel/x/message/channel/a/consumer/b/pull", False),
    ],
)
def test_what_is_no_pull_neither_shares_their_thread_nor_has_its_body_cut(
    method: str, path: str, is_one: bool
) -> None:
    """The wrapper `with_pulls` changes only POSTs of pulls, acks and renewals."""
    seen = []

    async def receive() -> Any:
        raise AssertionError

    async def application(scope: Any, receives: Any, send: Any) -> None:
        shares = SyncToAsync.thread_sensitive_context.get(None) is SHARED
        seen.append((shares, receives is not receive))

    scope = {"type": "http", "method": method, "path": path}
    async_to_sync(with_pulls(application))(scope, receive, None)
    assert seen == [(is_one, is_one)]


def test_who_sends_one_reads_why_it_is_refused(puller: Puller) -> None:
    """A client that sends a body above the limit gets the answer 413."""
    refused = puller.post("ack", bytes(20 * MIB))
    assert (refused.status_code, refused.json()["code"]) == (413, "body_too_large")


def test_a_request_that_django_can_not_read_is_refused() -> None:
    """A query that is not UTF-8, which some servers pass on, gets Django's 400 and no traceback."""
    received, sent = [{"type": "http.request"}], list[Any]()

    async def receive() -> Any:
        return received.pop() if received else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/channel/a/consumer/b/pull"}
    wrapped = with_pulls(get_asgi_application())
    async_to_sync(wrapped)({**scope, "query_string": b"a=\xff"}, receive, send)
    assert [message.get("status") for message in sent] == [400, None]


def test_log_lines_of_a_request_bear_its_id(
    puller: Puller, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log lines have the X-Request-ID on any thread, except those for several requests at once."""
    caplog.handler.addFilter(RequestIdFilter())
    publish()
    [job] = puller.taken()
    puller.ack(outcome_of(job, "RELEASE"))
    puller.tokens["X-Request-ID"] = "r-1"
    assert puller.statuses(outcome_of(job, "DELIVERED")) == ["lease_lost"]

    def fails(*args: object) -> None:
        logging.getLogger("pulljobs.tests").warning("claiming")
        raise OperationalError("the connection was cut")

    monkeypatch.setattr(WaiterQueue, "_claim", fails)
    assert puller.post("pull").status_code == 503
    records = {record.getMessage().partition(" ")[0]: record for record in caplog.records}
    ids = {text: getattr(record, "request_id", None) for text, record in records.items()}
    assert (ids["Lost"], ids["claiming"], ids["claims"]) == ("r-1", "r-1", "-")


def test_claims_that_fail_are_logged_once_a_second_at_most(
    puller: Puller, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: object) -> None:
        raise OperationalError("No space left on device")

    monkeypatch.setattr(WaiterQueue, "_claim", fails)
    began = time.monotonic()
    for _ in range(9):
        assert puller.post("pull").status_code == 503
    logged = [record for record in caplog.records if "claims over HTTP" in record.getMessage()]
    assert 1 <= len(logged) <= 2 + (time.monotonic() - began)


def test_a_site_that_is_not_wrapped_gets_its_threads_back(
    client: httpx.Client, census: Subscription, emptied: None
) -> None:
    """Without `with_pulls`, Django uses a thread for each request, but not while a pull waits."""
    with served(wrap=lambda application: application) as base, ExitStack() as clients:
        puller = Puller(client, base, census)
        before = threading.active_count()
        for _ in range(20):
            clients.enter_context(puller.hung_up())
        wait_briefly(lambda: threading.active_count() - before <= 10)


def test_where_requests_are_transactions(settings: Settings, puller: Puller) -> None:
    """With ATOMIC_REQUESTS, views that wait are not wrapped in a transaction."""
    connection.settings_dict["ATOMIC_REQUESTS"] = True
    try:
        pulls_linger(puller, 1)
        assert puller.statuses() == []
    finally:
        connection.settings_dict["ATOMIC_REQUESTS"] = False


@pytest.fixture
def by_wsgi(
    live_server: LiveServer, client: httpx.Client, census: Subscription, emptied: None
) -> Puller:
    return Puller(client, live_server.url, census)


def test_under_wsgi_pulls_linger_on_threads_up_to_a_limit(
    by_wsgi: Puller, settings: Settings
) -> None:
    """Under WSGI, long polls above the limit get 429 with Retry-After. Other pulls do not count."""
    setattr(settings, SETTING, {"MAX_LONG_POLL_THREADS": 2})
    threads = [by_wsgi.long_poll(), by_wsgi.long_poll()]
    refused = by_wsgi.post("pull", Expires=LONG)
    assert (refused.status_code, refused.json()["code"]) == (429, "max_lingering_threads")
    assert refused.headers["Retry-After"] == "1"
    assert by_wsgi.pull()["Status"]["Reason"] == "no_messages"
    publish()
    publish()
    assert [len(thread.result().json()["Result"]) for thread in threads] == [1, 1]
    pulls_linger(by_wsgi, 2)


def test_the_checks_of_the_example_project_are_silent() -> None:
    out = io.StringIO()
    call_command("check", stdout=out, stderr=out)
    assert "no issues" in out.getvalue()
