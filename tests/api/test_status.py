"""Status pages: no tokens in them, and counts that end at a cap."""

import importlib.util
import re
from datetime import timedelta

import pytest

from pulljobs import pulling
from pulljobs.metrics import gauges
from pulljobs.metrics.exposition import GAUGES
from pulljobs.models import Producer
from pulljobs.states import State
from pulljobs.storage import counts
from tests.api.caller import Subscription, job_in, publish, subscription
from tests.api.management import Manager, user
from tests.factories import USING
from tests.sessions import PATIENCE_SECONDS

PAGES = ["/_status", "/job-status", "/dlq-status", "/metrics"]


@pytest.fixture(autouse=True)
def as_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make status pages count again for each test, and wait for counts on a busy machine."""
    monkeypatch.setattr(gauges, "PATIENCE", timedelta(minutes=1))
    monkeypatch.setattr(gauges, "WAIT", PATIENCE_SECONDS)
    GAUGES.forget()


@pytest.fixture
def orders(db: None) -> Subscription:
    return subscription("orders", "census", title="Census")


@pytest.fixture
def every(orders: Subscription) -> Subscription:
    """Subscription with a job in every state and two more queued jobs, next to an idle consumer."""
    for state in (*State, State.QUEUED, State.QUEUED):
        job_in(state, orders)
    subscription("invoices", "idle")
    return orders


def test_jobs_by_channel_and_by_the_consumer_s_row(every: Subscription, manager: Manager) -> None:
    """The page `/job-status` counts jobs by channel, row id of the consumer and status code."""
    shown = manager.get("/job-status").json()
    [rows] = shown["orders"].values()
    assert list(shown["orders"]) == [str(every.consumer.pk)]
    assert {row["status"]: row["count"] for row in rows} == {1001: 3, 1002: 1, 1003: 1, 1004: 1}
    for row in rows:
        assert row["oldestItemTimestamp"] <= row["newestItemTimestamp"]
        assert "Capped" not in row
    assert list(shown["invoices"].values()) == [[]]


def test_dead_ones(every: Subscription, manager: Manager) -> None:
    """The page `/dlq-status` counts the dead jobs of each consumer that has some."""
    assert manager.get("/dlq-status").json() == {
        "consumers": [
            {
                "channelId": "orders",
                "channelName": "orders",
                "consumerId": str(every.consumer.pk),
                "consumerName": "Census",
                "deadCount": 1,
            }
        ]
    }


def test_counts_are_capped(
    every: Subscription, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count of `/job-status` ends at the cap and says that it is capped."""
    monkeypatch.setattr(counts, "CAP", 2)
    [rows] = manager.get("/job-status").json()["orders"].values()
    [queued] = [row for row in rows if row["status"] == 1001]
    assert (queued["count"], queued["Capped"]) == (2, True)
    job_in(State.DELIVERED, every)
    for _ in range(2):  # of the newest three settlements first two, then all are deliveries
        job_in(State.DELIVERED, every)
        [rows] = manager.get("/job-status").json()["orders"].values()
        [delivered] = [row for row in rows if row["status"] == 1003]
        assert (delivered["count"], delivered["Capped"]) == (2, True)


def test_what_waits_behind_its_key_is_queued(orders: Subscription, manager: Manager) -> None:
    orders.consumer.exclusive_keys = True
    orders.consumer.save()
    for _ in range(3):
        publish(key="k")
    assert len(pulling.Puller(USING, orders.consumer).claim(3).jobs) == 1
    [rows] = manager.get("/job-status").json()["orders"].values()
    assert {row["status"]: row["count"] for row in rows} == {1001: 2, 1002: 1}


def test_the_app(every: Subscription, manager: Manager) -> None:
    """The page `/_status` lists channels, producers and consumers."""
    Producer.objects.create(name="shop")
    shown = manager.get("/_status").json()
    assert shown["AppStatus"] == 3
    assert shown["SeedData"] == {
        "Channels": [{"ID": "invoices", "Name": "invoices"}, {"ID": "orders", "Name": "orders"}],
        "Producers": [{"ID": "shop", "Name": "shop"}],
        "Consumers": [
            {"ID": "census", "Name": "Census", "Channel": "orders", "Type": "pull"},
            {"ID": "idle", "Name": "idle", "Channel": "invoices", "Type": "pull"},
        ],
    }


@pytest.mark.django_db(transaction=True)  # which is read aside
def test_metrics(every: Subscription, manager: Manager) -> None:
    """The page `/metrics` has the number of queued and of dead jobs of each consumer."""
    answer = manager.get("/metrics")
    assert answer["Content-Type"].startswith("text/plain")
    gauges = dict(re.findall(r"^(\w+_job_count{.*}) (\S+)$", answer.content.decode(), re.MULTILINE))
    assert gauges == {
        'queued_job_count{channel="orders",consumer="census"}': "3.0",
        'queued_job_count{channel="invoices",consumer="idle"}': "0.0",
        'dead_job_count{channel="orders",consumer="census"}': "1.0",
        'dead_job_count{channel="invoices",consumer="idle"}': "0.0",
    }


def test_without_the_package_metrics_say_what_to_install(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    hidden = lambda name: None if name == "prometheus_client" else find(name)  # noqa: E731  short
    monkeypatch.setattr("pulljobs.metrics.find_spec", hidden)
    answer = manager.get("/metrics")
    assert (answer.status_code, b"pip install" in answer.content) == (501, True)


@pytest.mark.parametrize("page", PAGES)
def test_no_tokens_and_not_for_everybody(page: str, every: Subscription, manager: Manager) -> None:
    """Status pages contain no tokens, and are refused to users without the permissions."""
    assert manager.get(page).status_code == 200
    for token in (every.channel_token, every.consumer_token):
        assert token.encode() not in manager.get(page).content
    user("reader", "view", models=("message",))
    assert Manager("reader").get(page).status_code == 403
    assert Manager().get(page).status_code in (401, 403)


@pytest.mark.parametrize("page", PAGES)
def test_of_nothing(page: str, manager: Manager) -> None:
    """Status pages work without any channel."""
    assert manager.get(page).status_code == 200
