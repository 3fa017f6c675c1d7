"""POST broadcast: bodies and headers that it accepts, its checks in order, and what it stores."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings

from pulljobs import ids
from pulljobs.models import Channel, Consumer, Job, Message, Producer, ScheduledMessage
from tests.api.broadcasting import Announcer
from tests.api.caller import Caller, Subscription, subscription
from tests.api.management import Manager
from tests.sessions import at_once, counts

XML = b"<?xml version='1.0'?><order id='17'/>"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
LATER = "2060-01-01T00:00:00Z"


@pytest.fixture
def orders(db: None) -> Subscription:
    return subscription("orders", "census")


@pytest.fixture
def announcer(orders: Subscription) -> Announcer:
    return Announcer(orders.channel, orders.channel_token)


def sent(answer: Any) -> Message:
    assert (answer.status_code, answer.content) == (201, b""), answer.content
    return Message.objects.latest("id")


def test_its_jobs_are_there_with_the_answer(announcer: Announcer) -> None:
    """Message and job are stored, with the fields of the headers, before the answer."""
    answer = announcer.post(b"{}", "application/json", Message_ID="m-1", Message_Priority="7")
    message = sent(answer)
    assert answer["Location"] == "/channel/orders/message/m-1"
    assert Job.objects.get().message_id == message.pk
    assert (bytes(message.payload), message.content_type) == (b"{}", "application/json")
    assert (message.priority, message.client_message_id) == (7, "m-1")
    assert message.producer is not None
    assert message.producer.name == "shop"


def test_a_message_without_an_id_gets_one(announcer: Announcer, manager: Manager) -> None:
    answer = announcer.post(b"x")
    assert answer["Location"] == f"/channel/orders/message/{ids.encode(sent(answer).pk)}"
    assert manager.get(answer["Location"]).json()["Payload"] == "x"


@pytest.mark.parametrize(
    ("payload", "content_type"),
    [
        (XML, "application/xml"),
        (PNG, "image/png"),
        (b"a=1&b=2", "application/x-www-form-urlencoded"),
        (b"--x\r\n\r\nbroken", "multipart/form-data; boundary=x"),
        (b"{", "application/json"),
        (b"x", "nonsense"),
        (b"x", "text/plain; charset=no-such"),
    ],
)
def test_any_body_of_any_type(payload: bytes, content_type: str, announcer: Announcer) -> None:
    """The payload is stored byte by byte as sent, because no parser reads it."""
    message = sent(announcer.post(payload, content_type))
    assert (bytes(message.payload), message.content_type) == (payload, content_type)


def test_no_type_is_bytes(announcer: Announcer) -> None:
    """Without a Content-Type, the type of the message is application/octet-stream."""
    assert sent(announcer.post(b"x", "")).content_type == "application/octet-stream"


RUNGS = [
    ("no such channel", 404),
    ("wrong channel token", 403),
    ("no producer", 401),
    ("wrong producer token", 403),
    ("unreadable schedule", 400),
]


@pytest.mark.parametrize("first", range(len(RUNGS)))
def test_the_first_failing_check_answers(first: int, announcer: Announcer) -> None:
    """The request fails one check and all later ones: its status is that of the first."""
    before = counts()
    named = {}
    for rung, _status in RUNGS[first:]:
        if rung == "no such channel":
            announcer.url = announcer.url.replace("orders", "order_")
        elif rung == "no producer":
            announcer.headers["X-Broker-Producer-ID"] = "sho_"
        elif rung == "unreadable schedule":
            named = {"Scheduled_For": "tomorrow"}
        else:
            name = "Channel" if "channel" in rung else "Producer"
            announcer.headers[f"X-Broker-{name}-Token"] = "guessed"
    answer = announcer.post(b"", **named)
    assert answer.status_code == RUNGS[first][1]
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    assert counts() == before


@pytest.mark.parametrize("header", ["Channel-Token", "Producer-ID", "Producer-Token"])
def test_a_missing_header(header: str, announcer: Announcer) -> None:
    """A request without the id of the producer is 401, and one without a token 403."""
    del announcer.headers[f"X-Broker-{header}"]
    assert announcer.post().status_code == (401 if header == "Producer-ID" else 403)


def test_a_token_of_another_channel(announcer: Announcer) -> None:
    """The token of another channel is refused with 403."""
    other = subscription("invoices", "census")
    announcer.headers["X-Broker-Channel-Token"] = other.channel_token
    assert announcer.post().status_code == 403


def test_too_soon_comes_before_the_body(announcer: Announcer) -> None:
    """A time that is too near is refused with 412, before an empty body would be."""
    soon = (datetime.now(UTC) + timedelta(seconds=100)).isoformat()
    answer = announcer.post(b"", Scheduled_For=soon)
    assert (answer.status_code, b"120 seconds" in answer.content) == (412, True)


def test_empty_payloads_are_400(announcer: Announcer) -> None:
    before = counts()
    assert announcer.post(b"").status_code == 400
    assert counts() == before


@override_settings(PULLJOBS={"MAX_PAYLOAD_BYTES": 1000})
def test_the_payload_has_a_limit(announcer: Announcer) -> None:
    assert announcer.post(b"x" * 1000).status_code == 201
    answer = announcer.post(b"x" * 1001)
    assert (answer.status_code, b"1000 bytes" in answer.content) == (413, True)


def test_a_payload_above_what_django_holds_in_memory(announcer: Announcer) -> None:
    """A payload above 2.5 MiB gets the 413 of the limit of 1 MiB, and not the page of Django."""
    assert announcer.post(b"x" * 3_000_000).status_code == 413


@pytest.mark.parametrize(
    ("given", "priority"),
    [
        ("5", 5),
        ("-5", 5),
        ("+5", 5),
        ("", 0),
        ("high", 0),
        ("1.5", 0),
        ("٣", 0),
        ("1_0", 0),
        ("32767", 32767),
        ("0" * 30 + "7", 7),
    ],
)
def test_priorities(given: str, priority: int, announcer: Announcer) -> None:
    """The absolute value of the header is the priority. A text that is no number counts as 0."""
    assert sent(announcer.post(Message_Priority=given)).priority == priority


@pytest.mark.parametrize("given", ["32768", "-99999", "9" * 30])
def test_a_priority_out_of_range_is_refused(given: str, announcer: Announcer) -> None:
    answer = announcer.post(Message_Priority=given)
    assert (answer.status_code, b"from 0 to 32767" in answer.content) == (400, True)
    assert not Message.objects.exists()


def test_the_cost_of_a_job(announcer: Announcer) -> None:
    """X-Broker-Cost is the cost of the jobs. It must be a whole number from 1 on, or is 400."""
    assert announcer.post(Cost="7").status_code == 201
    assert Job.objects.get().cost == 7
    for given in ("0", "x", "1000001", "9" * 30):
        answer = announcer.post(Cost=given)
        assert (answer.status_code, b"whole number from 1 to" in answer.content) == (400, True)


def test_metadata_headers(announcer: Announcer) -> None:
    """Metadata-Headers lists the headers to store, spelt as in the list and not trimmed."""
    announcer.headers |= {"X-Trace": "t-1", "Lang": "Größe", "Other": "no"}
    message = sent(announcer.post(Metadata_Headers="x-TRACE,lang, Other,missing,,Lang"))
    assert message.headers == {"x-TRACE": "t-1", "lang": "Größe", "Lang": "Größe"}


@pytest.mark.parametrize(
    "name",
    [
        "X-Broker-Channel-Token",
        "X-Broker-Consumer-Token",
        "X-Broker-Producer-Token",
        "x_bro\u212aer_producer_to\u212aen",
        "X-Broker-Lease-Token",
        "X-Broker-Signature",
        "AUTHORIZATION",
        "Proxy-Authorization",
        "Proxy-Verify",
        "cookie",
    ],
)
def test_secrets_are_no_metadata(name: str, announcer: Announcer) -> None:
    """Headers with credentials are not stored with the message, in any spelling of their names."""
    sent_as = name.replace("_", "-").replace("\u212a", "k")
    announcer.headers = {sent_as: "secret", "X-Token": "t-1", **announcer.headers}
    named = f"{name},X-Token,X-Broker-Producer-ID".encode().decode("latin-1")
    message = sent(announcer.post(Metadata_Headers=named))
    assert message.headers == {"X-Token": "t-1", "X-Broker-Producer-ID": "shop"}


def test_headers_in_utf_8(announcer: Announcer) -> None:
    """Header values are read as UTF-8, although servers decode them as Latin-1."""
    answer = announcer.post(Message_ID="größe".encode().decode("latin-1"))
    assert sent(answer).client_message_id == "größe"
    assert answer["Location"] == "/channel/orders/message/gr%C3%B6%C3%9Fe"


def test_the_id_of_a_producer_in_utf_8(census: Subscription) -> None:
    """The id of a producer is read as UTF-8, although servers decode headers as Latin-1."""
    announcer = Announcer(census.channel, census.channel_token, "größe")
    announcer.headers["X-Broker-Producer-ID"] = "größe".encode().decode("latin-1")
    assert announcer.post().status_code == 201


def test_a_key(announcer: Announcer) -> None:
    """X-Broker-Key is the key of the message."""
    assert sent(announcer.post(Key="customer-1")).key == "customer-1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Message-ID", "x" * 256),
        ("Key", "x" * 256),
        ("Metadata-Headers", ",".join(f"H{number}" for number in range(65))),
    ],
)
def test_headers_out_of_bounds(name: str, value: str, announcer: Announcer) -> None:
    """An id or key that is too long, or too many metadata headers, are 400 and store nothing."""
    before = counts()
    announcer.headers |= {f"H{number}": "x" for number in range(65)}
    announcer.headers[f"X-Broker-{name}"] = value
    assert announcer.post().status_code == 400
    assert counts() == before


@pytest.mark.parametrize("name", ["a/b", "a b", "%41", "ü"])
def test_ids_of_messages_are_free_text(name: str, announcer: Announcer, manager: Manager) -> None:
    answer = announcer.post(Message_ID=name.encode().decode("latin-1"))
    assert manager.get(answer["Location"]).json()["ID"] == name


# Duplicates


def test_a_duplicate_is_409_whatever_its_body(announcer: Announcer) -> None:
    sent(announcer.post(b"x", Message_ID="m-1"))
    before = counts()
    assert announcer.post(b"y", Message_ID="m-1").status_code == 409
    assert counts() == before


def test_also_when_the_first_was_delivered(
    orders: Subscription, announcer: Announcer, caller_of_orders: Caller
) -> None:
    """A client message id is still refused after the job of its message was delivered."""
    sent(announcer.post(Message_ID="m-1"))
    xid = ids.encode(Job.objects.get().pk)
    for state in ("INFLIGHT", "DELIVERED"):
        assert caller_of_orders.move(xid, state).status_code == 202
    assert announcer.post(Message_ID="m-1").status_code == 409


@pytest.fixture
def caller_of_orders(orders: Subscription) -> Caller:
    return Caller(orders)


def test_ids_are_those_of_a_channel(announcer: Announcer) -> None:
    """Two channels may have messages with the same client message id."""
    other = subscription("invoices", "census")
    elsewhere = Announcer(other.channel, other.channel_token)
    assert announcer.post(Message_ID="m-1").status_code == 201
    assert elsewhere.post(Message_ID="m-1").status_code == 201


@override_settings(PULLJOBS={"DEDUPE_WINDOW": timedelta(0)})
def test_after_the_window_the_newest_answers(announcer: Announcer, manager: Manager) -> None:
    """If the dedupe window is over, an id can be used again and names the newest message."""
    announcer.post(b"first", Message_ID="m-1")
    announcer.post(b"second", Message_ID="m-1")
    assert manager.get("/channel/orders/message/m-1").json()["Payload"] == "second"


@pytest.mark.django_db(transaction=True)
def test_of_duplicates_at_once_one_is_taken(announcer: Announcer) -> None:
    answers = at_once(6, lambda _number: announcer.post(Message_ID="m-1").status_code)
    assert sorted(answers) == [201] + [409] * 5
    assert Message.objects.count() == 1


def test_a_channel_without_consumers_takes_messages(db: None, manager: Manager) -> None:
    channel = Channel(name="quiet")
    token = channel.set_token()
    channel.save()
    answer = Announcer(channel, token).post(b"x")
    shown = manager.get(answer["Location"]).json()
    assert (answer.status_code, shown["Status"], shown["Jobs"]) == (201, "DISPATCHED", [])


def test_the_answer_names_the_jobs_whose_message_was_replaced(announcer: Announcer) -> None:
    Consumer.objects.update(max_queued_per_key=1, key_overflow="replace")
    first, second = announcer.post(b"a", Key="k"), announcer.post(b"b", Key="k")
    job = Job.objects.get()
    assert "X-Broker-Replaced-Jobs" not in first
    assert second["X-Broker-Replaced-Jobs"] == ids.encode(job.pk)
    assert job.message_id == sent(second).pk


@pytest.mark.parametrize("field", [{"X-Broker-Producer-ID": "a\x00b"}])
def test_nul_in_a_producer_s_id(field: dict[str, str], announcer: Announcer) -> None:
    """The id of a producer with a NUL character is unknown: 401."""
    announcer.headers |= field
    assert announcer.post().status_code == 401


def test_all_methods_but_post_are_405(announcer: Announcer) -> None:
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        answer = announcer.client.generic(method, announcer.url)
        assert (answer.status_code, answer["Allow"]) == (405, "POST, OPTIONS")
    assert Producer.objects.count() == 1
    assert not ScheduledMessage.objects.exists()
