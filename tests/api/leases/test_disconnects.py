"""Clients, connections and servers that go away while pulls wait."""

import threading
import time
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import pytest
from pytest_django import Settings

from pulljobs.api.leases.long_poll import waiters
from pulljobs.api.leases.long_poll.queue import WaiterQueue
from pulljobs.models import Consumer, Lease, Node, PullWaiter
from tests.api.caller import publish
from tests.api.leases.serving import (
    LONG,
    Puller,
    claim_elsewhere,
    in_flight,
    outcome_of,
    wait_briefly,
    waiting,
    waiting_pulls,
)
from tests.sessions import Thread, query, wait_until

CLIENTS = 20


class Late(NamedTuple):
    claimed: threading.Event
    gone: threading.Event
    """Set by the test once the client has closed its connection."""


AT_WORK = """
SELECT FROM pg_stat_activity
WHERE datname = current_database()
    AND pid <> pg_backend_pid()
    AND backend_type = 'client backend'
    AND (state <> 'idle' OR backend_xmin IS NOT NULL)
"""


def test_clients_that_were_killed_leave_nothing(puller: Puller) -> None:
    """The pulls of killed clients end, and the next job goes to another client, uncharged."""
    with ExitStack() as clients:
        for _ in range(CLIENTS):
            clients.enter_context(puller.hung_up())
        assert waiting_pulls() == CLIENTS
    wait_briefly(lambda: waiting_pulls() == 0)
    wait_briefly(lambda: not PullWaiter.objects.exists())
    publish()
    [job] = puller.taken()
    assert (job["Deliveries"], job["RetryCount"]) == (1, 0)
    assert Lease.objects.count() == 1


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Late:
    """Make claims with jobs return only when `gone` is set, so that clients can hang up before."""
    events = Late(threading.Event(), threading.Event())
    claim = WaiterQueue._claim

    def claim_late(*args: object) -> object:
        claimed = claim(*args)  # type: ignore[arg-type]  # passed on
        if claimed.jobs:
            events.claimed.set()
            events.gone.wait(LONG)
        return claimed

    monkeypatch.setattr(WaiterQueue, "_claim", claim_late)
    return events


@pytest.mark.parametrize("asked", [{}, {"RequestID": "r"}])
def test_what_was_claimed_for_a_client_that_went_goes_to_the_next(
    asked: dict[str, str], puller: Puller, late: Late
) -> None:
    """A job claimed for a client that hung up goes to the next pull, and no delivery is counted."""
    with puller.hung_up(**asked):
        publish()
        wait_briefly(lambda: in_flight() == 1)
    wait_briefly(lambda: waiting_pulls() == 0)
    late.gone.set()
    wait_briefly(lambda: in_flight() == 0)
    [job] = puller.taken(Expires=LONG, **asked)
    assert (job["Deliveries"], job["RetryCount"]) == (1, 0)


def test_jobs_that_a_repeat_received_are_not_given_back(puller: Puller, late: Late) -> None:
    """Jobs that were claimed for a client that hung up stay claimed if its repeat has got them."""
    with puller.hung_up(RequestID="r"):
        publish()
        wait_briefly(lambda: in_flight() == 1)
    wait_briefly(lambda: waiting_pulls() == 0)
    [job] = puller.taken(RequestID="r")
    late.gone.set()
    assert puller.taken() == []  # In line behind what would go back.
    assert puller.statuses(outcome_of(job, "DELIVERED")) == ["ok"]


def test_what_another_process_claimed_does_not_go_back(puller: Puller, late: Late) -> None:
    """A job stays claimed if the client of a pull hangs up and another process made the claim."""
    with puller.hung_up(RequestID="r"):
        claim_elsewhere(puller, "r")
        wakes = Thread(puller.taken)
        assert late.claimed.wait(LONG)
    wait_briefly(lambda: waiting_pulls() == 0)
    late.gone.set()
    assert wakes.result() == []
    assert in_flight() == 1


def test_pulls_that_linger_hold_next_to_nothing(puller: Puller) -> None:
    """Long polls hold no transaction, and few threads and connections, however many they are."""
    before, there = threading.active_count(), sessions()
    with ExitStack() as clients:
        for _ in range(3 * CLIENTS):
            clients.enter_context(puller.hung_up())
        wait_briefly(lambda: threading.active_count() - before <= 10)
        wait_briefly(lambda: not query(AT_WORK))
        wait_briefly(lambda: sessions() - there <= 10)
        wait_briefly(lambda: waiting() == 3 * CLIENTS)
    wait_briefly(lambda: waiting() == 0)


def sessions() -> int:
    """Count other sessions of this database, including those of a server that tests share."""
    [(count,)] = query(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid()"
    )
    return int(count)


def test_a_wake_up_does_not_make_all_claim(puller: Puller) -> None:
    """One published job leads to a few claims, not to one for each waiting pull."""
    claims = []
    claim = WaiterQueue._claim

    def counted(*args: Any) -> Any:
        claims.append(args)
        return claim(*args)

    with ExitStack() as clients, pytest.MonkeyPatch.context() as patch:
        for _ in range(CLIENTS):
            clients.enter_context(puller.hung_up())
        patch.setattr(WaiterQueue, "_claim", counted)
        publish()
        wait_briefly(lambda: waiting_pulls() == CLIENTS - 1)
        assert len(claims) < CLIENTS / 2


def test_connections_that_are_cut_are_made_again(puller: Puller) -> None:
    """Long polls survive a cut of all connections. Other pulls get 503 until there are new ones."""
    waits = puller.long_poll()
    query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    answers = []

    def answered() -> bool:
        answers.append(puller.post("pull", NoWait=True))
        return answers[-1].status_code == 200

    wait_until(answered)
    for answer in answers[:-1]:
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert answer.headers["Retry-After"] == "1"
    publish()
    assert len(waits.result().json()["Result"]) == 1


def test_a_connection_that_died_while_it_was_idle_costs_no_request(puller: Puller) -> None:
    """A pull succeeds although its database connection was ended while idle, as proxies may do."""
    assert puller.post("pull", NoWait=True).status_code == 200
    running = waiters.running_waiters()
    assert running is not None
    ask = partial(query, "SELECT pg_backend_pid()")
    [(pid,)] = running._threads.submit(ask, claiming_for=Consumer.objects.get().pk).result()
    query("SELECT pg_terminate_backend(%s, 60000)", [pid])
    assert puller.post("pull", NoWait=True).status_code == 200


def test_a_server_that_stops_says_so(puller: Puller) -> None:
    """Long polls are answered "server_shutdown". Jobs that are available are still given."""
    waits = [puller.long_poll(Batch=n) for n in (1, 2)]
    running = waiters.running_waiters()
    assert running is not None
    running.stop()
    statuses = [wait.result().json()["Status"] for wait in waits]
    assert [status["Reason"] for status in statuses] == ["server_shutdown"] * 2
    assert [status["PendingMessages"] for status in statuses] == [1, 2]
    start = time.monotonic()
    assert puller.pull(Expires=LONG)["Status"]["Reason"] == "server_shutdown"
    assert time.monotonic() - start < LONG / 2
    publish()
    assert len(puller.taken(Expires=LONG)) == 1
    wait_until(lambda: Node.objects.filter(stopped_at__isnull=False).exists())
    wait_briefly(lambda: not PullWaiter.objects.exists())


def test_without_notifications_it_polls(
    puller: Puller, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """The server finds jobs by polling if no notification arrives, as behind a pooler."""
    settings.PULLJOBS = {}
    monkeypatch.setattr("pulljobs.storage.listen.DATABASE_CHANNEL", "nobody_listens_here")
    waits = puller.long_poll()
    monkeypatch.undo()
    publish()
    assert len(waits.result().json()["Result"]) == 1


def test_a_process_is_a_node_with_a_heartbeat(puller: Puller) -> None:
    puller.pull()
    wait_until(lambda: Node.objects.filter(address=f"{puller.base}/").exists())
    assert Node.objects.get().kind == Node.Kind.API
