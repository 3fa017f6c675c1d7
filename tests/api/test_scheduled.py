"""Messages for later: accepted, shown, and published once their time has come."""

import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.db.models.functions import Now
from django.test import override_settings

from pulljobs import ids, operating, scheduling
from pulljobs.conf import settings
from pulljobs.models import Consumer, Job, Message, ScheduledMessage
from pulljobs.publishing import publish
from pulljobs.worker.reaper import Reaper
from tests.api.broadcasting import Announcer
from tests.api.caller import Subscription, subscription
from tests.api.management import Manager
from tests.sessions import at_once, counts

LATER = "2060-01-01T00:00:00Z"
ROOT = "/channel/orders"


@pytest.fixture
def orders(db: None) -> Subscription:
    return subscription("orders", "census")


@pytest.fixture
def announcer(orders: Subscription) -> Announcer:
    return Announcer(orders.channel, orders.channel_token)


def fall_due() -> None:
    ScheduledMessage.objects.update(dispatch_at=Now())


def test_it_waits_at_a_place_of_its_own(announcer: Announcer, manager: Manager) -> None:
    """A scheduled message adds no message and no job yet, and a plain message may have its id."""
    before = counts()
    answer = announcer.post(b"x", Message_ID="m-1", Message_Priority="3", Scheduled_For=LATER)
    assert (answer.status_code, answer["Location"]) == (201, f"{ROOT}/scheduled-message/m-1")
    assert counts() == before
    shown = manager.get(answer["Location"]).json()
    assert shown == {
        "id": ids.encode(ScheduledMessage.objects.get().pk),
        "messageId": "m-1",
        "contentType": "text/plain",
        "priority": 3,
        "producedBy": "shop",
        "dispatchSchedule": LATER,
        "dispatchedAt": None,
        "status": "SCHEDULED",
        "payload": "x",
        "headers": {},
    }
    assert manager.get(f"{ROOT}/message/m-1").status_code == 404
    assert announcer.post(b"y", Message_ID="m-1").status_code == 201


def test_without_an_id_it_gets_one(announcer: Announcer, manager: Manager) -> None:
    places = {announcer.post(Scheduled_For=LATER)["Location"] for _ in range(2)}
    assert len(places) == 2
    assert {manager.get(place).status_code for place in places} == {200}


def test_its_id_stays_taken(announcer: Announcer) -> None:
    """Other scheduled messages cannot have its client message id, even after it was published."""
    announcer.post(b"x", Message_ID="m-1", Scheduled_For=LATER)
    assert announcer.post(b"y", Message_ID="m-1", Scheduled_For=LATER).status_code == 409
    fall_due()
    scheduling.dispatch()
    assert announcer.post(b"z", Message_ID="m-1", Scheduled_For=LATER).status_code == 409


@pytest.mark.parametrize(
    "time",
    [
        "tomorrow",
        "2060-01-01",
        "2060-01-01T00:00:00",
        "2060-01-01 00:00:00Z",
        "20600101T000000Z",
        "2060-13-01T00:00:00Z",
        "2060-01-01T24:00:00Z",
        "9999-12-31T23:59:59-12:00",
        "0",
        "٢٠٦٠-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",  # pages could not show it in every zone
    ],
)
def test_times_that_can_t_be_read(time: str, announcer: Announcer) -> None:
    """A time that is not in RFC 3339, or too late, is refused with 400."""
    answer = announcer.post(Scheduled_For=time)
    assert (answer.status_code, ScheduledMessage.objects.count()) == (400, 0)


@pytest.mark.parametrize("time", ["2060-01-01T01:30:00.5+01:30", "2060-01-01T00:00:00.500000000Z"])
def test_times_in_other_zones(time: str, announcer: Announcer) -> None:
    """Times with another offset or with nanoseconds are accepted."""
    assert announcer.post(Scheduled_For=time).status_code == 201
    at = datetime(2060, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)
    assert ScheduledMessage.objects.get().dispatch_at == at


@pytest.mark.parametrize(
    ("least", "ahead", "status"), [(120, 100, 412), (120, 140, 201), (0, -1, 412), (1, 20, 201)]
)
def test_it_must_be_far_enough_ahead(
    least: int, ahead: int, status: int, announcer: Announcer
) -> None:
    time = (datetime.now(UTC) + timedelta(seconds=ahead)).isoformat()
    with override_settings(PULLJOBS={"MIN_SCHEDULE_DELAY": timedelta(seconds=least)}):
        assert announcer.post(Scheduled_For=time).status_code == status


# Dispatch


def test_it_goes_to_the_consumers_of_then(announcer: Announcer, manager: Manager) -> None:
    """A scheduled message is published once, with all its fields, to consumers that exist then."""
    announcer.headers["X-Trace"] = "t"
    named = {
        "Message_ID": "m-1",
        "Message_Priority": "4",
        "Key": "k",
        "Metadata_Headers": "X-Trace",
    }
    announcer.post(b"\xff", "image/png", Scheduled_For=LATER, **named)
    assert scheduling.dispatch() == 0
    subscription("orders", "digest")
    fall_due()
    assert scheduling.dispatch() == 1
    assert scheduling.dispatch() == 0
    message = Message.objects.get()
    assert (bytes(message.payload), message.content_type) == (b"\xff", "image/png")
    assert (message.client_message_id, message.priority, message.key) == ("m-1", 4, "k")
    assert (message.headers, message.producer is not None) == ({"X-Trace": "t"}, True)
    assert Job.objects.count() == 2
    assert manager.get(f"{ROOT}/message/m-1").status_code == 200
    shown = manager.get(f"{ROOT}/scheduled-message/m-1").json()
    assert (shown["status"], shown["dispatchedAt"] is not None) == ("DISPATCHED", True)


@pytest.mark.django_db(transaction=True)
def test_dispatchers_at_once_publish_each_once(announcer: Announcer) -> None:
    for number in range(30):
        announcer.post(Message_ID=f"m-{number}", Scheduled_For=LATER)
    fall_due()

    assert sum(at_once(4, lambda _number: scheduling.dispatch())) == 30
    assert Message.objects.count() == Job.objects.count() == 30


def test_a_plain_message_of_its_id_does_not_make_it_lost(announcer: Announcer) -> None:
    """A scheduled message and a plain one with the same client message id are both published."""
    announcer.post(b"later", Message_ID="m-1", Scheduled_For=LATER)
    announcer.post(b"now", Message_ID="m-1")
    fall_due()
    scheduling.dispatch()
    assert sorted(bytes(message.payload) for message in Message.objects.all()) == [b"later", b"now"]


def test_one_that_is_refused_does_not_stop_the_others(
    announcer: Announcer, orders: Subscription
) -> None:
    """A scheduled message that a full key refuses is tried again later. Others are published."""
    Consumer.objects.filter(pk=orders.consumer.pk).update(max_queued_per_key=1)
    publish("orders", b"in its way", key="k")
    announcer.post(Message_ID="full", Key="k", Scheduled_For=LATER)
    announcer.post(Message_ID="free", Scheduled_For=LATER)
    fall_due()
    assert scheduling.dispatch() == 1
    assert Message.objects.filter(client_message_id="free").exists()
    full = ScheduledMessage.objects.get(client_message_id="full")
    assert (full.dispatched_at, full.dispatch_at > datetime.now(UTC)) == (None, True)
    Job.objects.all().delete()
    fall_due()
    assert scheduling.dispatch() == 1
    assert Message.objects.filter(client_message_id="full").exists()


def test_what_was_accepted_is_published_whatever_the_limits_are_by_then(
    announcer: Announcer,
) -> None:
    announcer.headers["X-Trace"] = "t"
    announcer.post(b"x" * 100, Metadata_Headers="X-Trace", Scheduled_For=LATER)
    fall_due()
    with override_settings(PULLJOBS={"MAX_PAYLOAD_BYTES": 50, "MAX_HEADERS": 0}):
        assert scheduling.dispatch() == 1
    assert Message.objects.get().headers == {"X-Trace": "t"}


def test_the_command_dispatches(announcer: Announcer) -> None:
    """`pulljobs dispatch` publishes due messages and prints their number."""
    announcer.post(Scheduled_For=LATER)
    fall_due()
    output = StringIO()
    call_command("pulljobs", "dispatch", "--json", stdout=output)
    assert json.loads(output.getvalue()) == {"published": 1}
    assert Job.objects.count() == 1


def test_the_upkeep_forgets_them_with_the_rest(announcer: Announcer) -> None:
    """Maintenance deletes scheduled messages that were published longer ago than the retention."""
    for name in ("old", "new", "waiting"):
        announcer.post(Message_ID=name, Scheduled_For=LATER)
    done = ScheduledMessage.objects.exclude(client_message_id="waiting")
    done.update(dispatched_at=Now())
    done.filter(client_message_id="old").update(dispatched_at=Now() - timedelta(days=3))
    with override_settings(PULLJOBS={"RETENTION": timedelta(days=2)}):
        operating.maintain()
    left = ScheduledMessage.objects.values_list("client_message_id", flat=True)
    assert sorted(left) == ["new", "waiting"]
    assert announcer.post(Message_ID="old", Scheduled_For=LATER).status_code == 201


# Lists


def test_lists(announcer: Announcer, manager: Manager) -> None:
    """Scheduled messages are listed on pages of 25, the newest first, and filtered by status."""
    for number in range(30):
        announcer.post(Message_ID=f"m-{number}", Scheduled_For=LATER)
    ScheduledMessage.objects.filter(client_message_id="m-7").update(dispatched_at=Now())
    first = manager.get(f"{ROOT}/scheduled-messages").json()
    assert set(first) == {"result", "pages"}
    assert first["result"][0] == f"{ROOT}/scheduled-message/m-29"
    assert len(first["result"]) == 25
    assert len(manager.get(first["pages"]["next"]).json()["result"]) == 5
    assert _listed(manager, status=102) == [f"{ROOT}/scheduled-message/m-7"]
    assert len(_listed(manager, status=[101, 102])) == len(_listed(manager, status="x")) == 25
    assert _listed(manager, status=99) == []
    waiting = manager.get(f"{ROOT}/scheduled-messages", status=101).json()
    assert len(manager.get(waiting["pages"]["next"]).json()["result"]) == 4
    assert manager.get("/channel/x/scheduled-messages").status_code == 404
    for name in ("x", "%00"):
        assert manager.get(f"{ROOT}/scheduled-message/{name}").status_code == 404


def _listed(manager: Manager, **query: Any) -> list[str]:
    listed: list[str] = manager.get(f"{ROOT}/scheduled-messages", **query).json()["result"]
    return listed


def test_the_reaper_dispatches(announcer: Announcer) -> None:
    """A pass of a worker's reaper publishes the scheduled messages that are due."""
    announcer.post(Scheduled_For=LATER)
    fall_due()
    Reaper(settings(), uuid4(), lambda: None, dict, lambda: None).tick()
    assert Job.objects.count() == 1
