"""A database that falls silent, without a reset, delays a server for less than a lease."""

import time
from collections.abc import Iterator
from urllib.parse import urlencode

import httpx
import pytest
from django.db import connections

from tests.api.caller import Subscription, publish
from tests.api.leases.processes import site
from tests.api.leases.serving import LONG, Puller, waiting
from tests.factories import LEASE, USING
from tests.sessions import SLACK, Thread, wait_until
from tests.silent import SilentProxy, silent_proxy

pytestmark = [pytest.mark.slow, pytest.mark.processes, pytest.mark.own_session]


@pytest.fixture
def proxy() -> Iterator[SilentProxy]:
    with silent_proxy() as proxy:
        yield proxy


def url_of(proxy: SilentProxy) -> str:
    known = connections[USING].get_connection_params()
    more = {"user": known["user"], "sslmode": "disable", "gssencmode": "disable"}
    return f"postgres://127.0.0.1:{proxy.port}/{known['dbname']}?{urlencode(more)}"


def answers(puller: Puller) -> bool:
    return puller.post("pull").status_code == 200


def poll(puller: Puller, seconds: float) -> Thread:
    """Start a long poll on a thread. Return the thread once the server waits with it."""
    thread = Thread(lambda: puller.post("pull", Expires=seconds))
    wait_until(lambda: waiting() == 1)
    return thread


def is_ready(puller: Puller) -> bool:
    return httpx.get(f"{puller.base}/readyz", timeout=60).status_code == 200


def test_a_server_answers_while_its_database_is_silent_and_goes_on_after(
    client: httpx.Client, census: Subscription, proxy: SilentProxy
) -> None:
    """While all connections to the database are silent, pulls get 503. Then they work again."""
    environment = {
        "SERVED_DATABASE": str(connections[USING].settings_dict["NAME"]),
        "DATABASE_URL": url_of(proxy),
    }
    with site(environment) as served:
        puller = Puller(client, served.base, census)
        polling = poll(puller, seconds=10)
        proxy.silence()
        start = time.monotonic()
        assert puller.post("pull").status_code == 503
        assert time.monotonic() - start < LEASE.total_seconds() + SLACK
        assert not is_ready(puller)
        proxy.speak()
        wait_until(lambda: answers(puller) and is_ready(puller))
        polling.result()
        polling = poll(puller, seconds=LONG)
        publish()
        assert len(polling.result().json()["Result"]) == 1
