"""A listing, a job POST and `/readyz` end within a bound when the database silently stops."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client

from pulljobs.api import base_views
from pulljobs.api.leases import service
from pulljobs.engine import deadlines
from tests.api.caller import Caller, Subscription, publish
from tests.sessions import PATIENCE_SECONDS, SLACK, Thread
from tests.silent import SilentProxy, behind, silent_proxy

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.own_session]


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[SilentProxy]:
    monkeypatch.setattr(base_views, "REQUEST_SECONDS", 0.5)
    monkeypatch.setattr(service, "ANSWER_SECONDS", 2.0)
    monkeypatch.setattr(deadlines, "GRACE_SECONDS", 0.3)
    monkeypatch.setattr(deadlines, "PASS_SECONDS", 0.05)
    with silent_proxy() as proxy:
        yield proxy


def status_through(proxy: SilentProxy, request: Callable[[], Any]) -> int:
    def send() -> int:
        with behind(proxy) as wrapper:
            wrapper.ensure_connection()
            proxy.silence()
            return int(request().status_code)

    return int(Thread(send).result())


def test_a_request_of_the_broker_protocol_ends(census: Subscription, proxy: SilentProxy) -> None:
    caller = Caller(census)
    job_id = publish()
    assert status_through(proxy, caller.queued) == 503
    proxy.speak()
    assert status_through(proxy, lambda: caller.move(job_id, "INFLIGHT")) == 503


def test_readiness_is_known_although_no_connection_can_be_opened(
    transactional_db: None, proxy: SilentProxy
) -> None:
    proxy.silence()

    def ask() -> int:
        with behind(proxy):
            return Client().get("/readyz").status_code

    start = time.monotonic()
    assert Thread(ask).result() == 503
    assert time.monotonic() - start < min(10 + SLACK, PATIENCE_SECONDS)
