"""Messages of a channel are read over HTTP, one by one and in lists."""

import base64
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from pulljobs import ids, operating
from pulljobs.models import Consumer, Message, ScheduledMessage
from pulljobs.publishing import publish
from pulljobs.states import State
from pulljobs.storage import published
from pulljobs.storage.pages import Cut
from tests.api.broadcasting import Announcer
from tests.api.caller import Subscription, job_in, subscription
from tests.api.management import Manager, user
from tests.factories import USING

ROOT = "/channel/orders"
KEYS = [
    "ID",
    "Payload",
    "ContentType",
    "ProducedBy",
    "ReceivedAt",
    "DispatchedAt",
    "Status",
    "Jobs",
    "Headers",
]


@pytest.fixture
def orders(db: None) -> Subscription:
    return subscription(
        "orders", "census", callback_url="http://example.com/census", title="Census"
    )


def test_a_message(orders: Subscription, manager: Manager) -> None:
    """A message is read by its id with its fields, headers and jobs."""
    announcer = Announcer(orders.channel, orders.channel_token)
    announcer.headers["Lang"] = "de"
    announcer.post(b"Hallo", "text/x", Message_ID="m-1", Metadata_Headers="Lang")
    shown = manager.get(f"{ROOT}/message/m-1").json()
    assert list(shown) == KEYS
    assert (shown["ID"], shown["Payload"], shown["ContentType"]) == ("m-1", "Hallo", "text/x")
    assert (shown["ProducedBy"], shown["Status"]) == ("shop", "DISPATCHED")
    assert shown["Headers"] == {"Lang": "de"}
    [job] = shown["Jobs"]
    assert job == {
        "ListenerEndpoint": "http://example.com/census",
        "ListenerName": "Census",
        "Status": "QUEUED",
        "StatusChangedAt": shown["ReceivedAt"],
    }


@pytest.mark.parametrize("state", list(State))
def test_the_state_of_its_jobs(state: State, orders: Subscription, manager: Manager) -> None:
    """A message shows one job per consumer, also a job that only the archive has."""
    subscription("orders", "digest")
    job_in(state, orders)
    [name] = manager.get(f"{ROOT}/messages").json()["Result"]
    jobs = {job["ListenerName"]: job["Status"] for job in manager.get(name).json()["Jobs"]}
    assert jobs == {"Census": state, "digest": "QUEUED"}


def test_a_job_that_was_deleted_is_not_shown(orders: Subscription, manager: Manager) -> None:
    operating.delete([job_in(State.DEAD, orders)])
    [name] = manager.get(f"{ROOT}/messages").json()["Result"]
    assert manager.get(name).json()["Jobs"] == []


@pytest.mark.parametrize("state", [State.DELIVERED, State.QUEUED])
def test_a_job_whose_consumer_was_deleted_row_and_all_is_not_shown(
    state: State, orders: Subscription, manager: Manager
) -> None:
    """A message leaves out jobs of a consumer whose row was deleted by the ORM or by SQL."""
    job_in(state, orders)
    Consumer.objects.all()._raw_delete(USING)  # as SQL does it
    [name] = manager.get(f"{ROOT}/messages").json()["Result"]
    assert manager.get(name).json()["Jobs"] == []


def test_bytes_that_are_no_text(orders: Subscription, manager: Manager) -> None:
    """A payload that is no UTF-8 is shown as base64."""
    publish("orders", b"\xff\x00", message_id="m-1")
    shown = manager.get(f"{ROOT}/message/m-1").json()
    assert shown["PayloadEncoding"] == "base64"
    assert base64.b64decode(shown["Payload"]) == b"\xff\x00"


@pytest.mark.parametrize("name", ["x", "%00", "0" * 20, "m-", "m_1", "M-1"])
def test_unknown_messages(name: str, orders: Subscription, manager: Manager) -> None:
    """Ids are compared exactly, and an unknown message or channel is 404."""
    publish("orders", b"x", message_id="m-1")
    assert manager.get(f"{ROOT}/message/{name}").status_code == 404
    assert manager.get("/channel/x/message/m-1").status_code == 404


def test_a_message_of_another_channel_is_unknown(orders: Subscription, manager: Manager) -> None:
    subscription("invoices", "census")
    for options in ({"message_id": "m-1"}, {}):
        id = publish("orders", b"x", **options).message_id  # type: ignore[arg-type]  # of two kinds
        for name in ("m-1", ids.encode(id)):
            assert manager.get(f"/channel/invoices/message/{name}").status_code == 404


def test_lists(orders: Subscription, manager: Manager) -> None:
    """The list of messages has their URLs, on pages of 25 with the newest first."""
    for number in range(30):
        publish("orders", b"x", message_id=f"m-{number}")
    last = ids.encode(publish("orders", b"x").message_id)
    first = manager.get(f"{ROOT}/messages").json()
    assert first["Result"][:2] == [f"{ROOT}/message/{last}", f"{ROOT}/message/m-29"]
    assert (len(first["Result"]), first["Links"]) == (25, None)
    second = manager.get(first["Pages"]["next"]).json()
    assert len(second["Result"]) == 6
    assert manager.get(second["Pages"]["previous"]).json()["Result"] == first["Result"]
    assert manager.get("/channel/x/messages").status_code == 404


@pytest.mark.parametrize(
    ("status", "matches"),
    [(102, 1), ([101, 102], 1), ("x", 1), ("", 1), (101, 0), (7, 0), (["x", 7], 0)],
)
def test_lists_by_status(status: Any, matches: int, orders: Subscription, manager: Manager) -> None:
    """Every message has the status 102, DISPATCHED. A filter by a text is ignored."""
    publish("orders", b"x")
    page = manager.get(f"{ROOT}/messages", status=status).json()
    assert len(page["Result"]) == matches
    if matches and status == 102:
        assert manager.get(page["Pages"]["previous"]).json()["Result"] == []


def test_counts(orders: Subscription, manager: Manager) -> None:
    """The status of a channel has the number of messages by status and the next scheduled time."""
    announcer = Announcer(orders.channel, orders.channel_token)
    assert manager.get(f"{ROOT}/messages-status").json() == {"counts": {}}
    for _ in range(3):
        publish("orders", b"x")
    for name in ("due", "waiting", "done"):
        announcer.post(Message_ID=name, Scheduled_For="2060-01-01T00:00:00Z")
    scheduled = ScheduledMessage.objects
    scheduled.filter(client_message_id="done").update(dispatched_at=Now())
    scheduled.filter(client_message_id="due").update(dispatch_at=Now() - timedelta(seconds=1))
    shown = manager.get(f"{ROOT}/messages-status").json()
    counts = {name: count["Count"] for name, count in shown["counts"].items()}
    assert counts == {
        "DISPATCHED": 3,
        "ACKNOWLEDGED": 1,
        "SCHEDULED_SCHEDULED": 2,
        "SCHEDULED_DISPATCHED": 1,
    }
    listed = manager.get(shown["counts"]["DISPATCHED"]["Links"]["messages"]).json()
    assert len(listed["Result"]) == 3
    assert shown["next_scheduled_message_at"].endswith("Z")
    assert manager.get("/channel/x/messages-status").json() == {"counts": {}}


def test_counts_are_capped(
    orders: Subscription, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count ends at the cap and says that it is capped."""
    monkeypatch.setattr(published, "CAP", 3)
    monkeypatch.setattr("pulljobs.api.broker.resources.CAP", 3)
    for _ in range(5):
        publish("orders", b"x")
    shown = manager.get(f"{ROOT}/messages-status").json()["counts"]["DISPATCHED"]
    assert (shown["Count"], shown["Capped"]) == (3, True)


@pytest.mark.parametrize(
    "path", ["messages", "message/m-1", "messages-status", "scheduled-messages"]
)
def test_who_may_read(path: str, orders: Subscription, manager: Manager) -> None:
    """Messages are read by users with the permission to view them, and by no others."""
    publish("orders", b"x", message_id="m-1")
    user("clerk", "view", models=("channel", "consumer", "job"))
    user("reader", "view", models=("message", "scheduledmessage"))
    answers = [
        reader.get(f"{ROOT}/{path}") for reader in (Manager(), Manager("clerk"), Manager("reader"))
    ]
    assert [answer.status_code for answer in answers[1:]] == [403, 200]
    assert answers[0].status_code in (401, 403)


def test_a_page_is_read_without_its_payloads(orders: Subscription, manager: Manager) -> None:
    """A page takes one statement, and that does not select the payloads."""
    publish("orders", b"x" * 100_000)
    with CaptureQueriesContext(connection) as captured:
        published.page(USING, orders.channel.pk, Cut())
    assert len(captured) == 1
    assert "payload" not in captured[0]["sql"]
    assert Message.objects.count() == 1
