"""Rows that publishing writes, and the time when other sessions see them."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from pulljobs import publishing
from pulljobs.engine.validation import NewMessage
from pulljobs.errors import LONGEST_DELAY, InvalidMessage
from pulljobs.models import Consumer, Job, Message, Producer
from pulljobs.publishing import (
    BATCH,
    Draft,
    Receipt,
    apublish,
    apublish_many,
    publish,
    publish_many,
)
from pulljobs.storage import messages
from tests.factories import USING, ChannelFactory, ConsumerFactory
from tests.sessions import TABLES, contents, counts, query, session

pytestmark = pytest.mark.django_db
NOTHING = dict.fromkeys(TABLES, 0)


Way = Callable[..., Receipt]


def publish_alone(channel: str, **fields: Any) -> Receipt:
    return publish(channel, fields.pop("payload"), **fields)


def among_others(channel: str, *, producer: Producer | None = None, **fields: Any) -> Receipt:
    """Publish a message between two others with one statement, publish_batch.sql."""
    other = Draft(payload=b"other", priority=-1)
    return publish_many(channel, [other, Draft(**fields), other], producer=producer)[1]


def among_later_ones(channel: str, *, producer: Producer | None = None, **fields: Any) -> Receipt:
    """Publish a message between two delayed messages with one statement, publish.sql."""
    later = Draft(payload=b"later", priority=-1, delay=timedelta(hours=9))
    return publish_many(channel, [later, Draft(**fields), later], producer=producer)[1]


WAYS = pytest.mark.parametrize("way", [publish_alone, among_others, among_later_ones])


@WAYS
def test_one_job_for_each_consumer_of_the_channel(way: Way) -> None:
    channel = ChannelFactory.create()
    consumers = [ConsumerFactory.create(channel=channel) for _ in range(3)]
    ConsumerFactory.create()
    gone = ConsumerFactory.create(channel=channel, deleted_at=datetime.now(UTC))
    receipt = way(channel.name, payload=b"x")
    jobs = Job.objects.filter(message=receipt.message_id)
    rows = list(jobs.order_by("consumer_id").values_list("id", "consumer_id", "message_id"))
    assert rows == [
        (job_id, consumer.pk, receipt.message_id)
        for job_id, consumer in zip(receipt.job_ids, consumers, strict=True)
    ]
    assert not Job.objects.filter(consumer=gone).exists()


@WAYS
def test_a_channel_without_consumers_keeps_the_message(way: Way) -> None:
    channel = ChannelFactory.create()
    receipt = way(channel.name, payload=b"x")
    assert receipt.job_ids == []
    assert Message.objects.filter(payload=b"x").get().pk == receipt.message_id


EAST = timezone(timedelta(hours=3))
AWKWARD = [
    "NULL",
    "null",
    '"',
    "\\",
    '{"a",b}',
    "a,b",
    " x ",
    "\n\t",
    "%s %(x)s",
    "$1",
    "'",
    "ü😀",
    "\x7f",
]


@WAYS
@pytest.mark.parametrize("text", AWKWARD)
def test_awkward_text_is_stored_as_it_is(way: Way, text: str) -> None:
    channel = ChannelFactory.create().name
    receipt = way(
        channel, payload=text, key=text, message_id=text, headers={text: text}, priority=7
    )
    message = Message.objects.get(priority=7)
    assert message.pk == receipt.message_id
    assert (message.key, message.client_message_id) == (text, text)
    assert message.headers == {text: text}
    assert bytes(message.payload) == text.encode()


@pytest.mark.parametrize(
    ("payload", "stored", "content_type"),
    [
        (b"\x00\xff", b"\x00\xff", "application/octet-stream"),
        (bytearray(b"ab"), b"ab", "application/octet-stream"),
        (memoryview(b"ab"), b"ab", "application/octet-stream"),
        ("grün\x00", "grün\x00".encode(), "text/plain; charset=utf-8"),
        ({"n": [1, None]}, b'{"n": [1, null]}', "application/json"),
        (None, b"null", "application/json"),
        ("", b"", "text/plain; charset=utf-8"),
        (
            [{"n": 1.5, "ü": (True, None)}, []],
            b'[{"n": 1.5, "\\u00fc": [true, null]}, []]',
            "application/json",
        ),
        (
            {"day": date(2026, 1, 2), "id": UUID(int=0)},
            b'{"day": "2026-01-02", "id": "00000000-0000-0000-0000-000000000000"}',
            "application/json",
        ),
    ],
)
def test_payloads(payload: object, stored: bytes, content_type: str) -> None:
    """Bytes, text and other values are stored as bytes, with the content type that fits."""
    channel = ChannelFactory.create()
    publish(channel.name, payload)
    message = Message.objects.get()
    assert (bytes(message.payload), message.content_type) == (stored, content_type)


@WAYS
def test_all_that_can_be_said_is_stored(way: Way) -> None:
    """Every argument of a publish is stored with the message or its job."""
    consumer = ConsumerFactory.create(exclusive_keys=True)
    producer = Producer.objects.create(name="shop")
    receipt = way(
        consumer.channel.name,
        payload="<a/>",
        key="k" * 255,
        priority=-32_768,
        message_id="m" * 255,
        headers={"trace": "grün"},
        content_type="text/xml",
        producer=producer,
    )
    message, job = Message.objects.get(priority=-32_768), Job.objects.get(priority=-32_768)
    assert (message.pk, job.pk) == (receipt.message_id, receipt.job_ids[0])
    assert (message.key, job.key) == ("k" * 255, "k" * 255)
    assert (message.priority, job.priority) == (-32_768, -32_768)
    assert message.client_message_id == "m" * 255
    assert message.headers == {"trace": "grün"}
    assert message.content_type == "text/xml"
    assert (message.producer_id, message.channel_id) == (producer.pk, consumer.channel_id)
    assert (job.state, job.retry_count, job.deliveries) == ("QUEUED", 0, 0)
    assert job.available_at == message.published_at


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("given", [[{}, {}], [{}, {"trace": "grün"}, {}]])
def test_headers_of_many(key: str | None, given: list[dict[str, str]]) -> None:
    """Each message of `publish_many` is stored with its own headers."""
    drafts = [Draft(payload=b"x", headers=headers, key=key) for headers in given]
    receipts = publish_many(ConsumerFactory.create().channel.name, drafts)
    stored = Message.objects.in_bulk()
    assert [stored[receipt.message_id].headers for receipt in receipts] == given


@pytest.mark.parametrize(
    ("options", "due_seconds"),
    [
        ({"delay": timedelta(minutes=5)}, 300),
        ({"available_at": lambda: datetime.now(UTC) + timedelta(hours=1)}, 3600),
        ({"available_at": lambda: datetime.now(UTC) - timedelta(hours=1)}, 0),
        ({"available_at": lambda: datetime.now(EAST) + timedelta(hours=1)}, 3600),
        (
            {
                "available_at": lambda: datetime.now(UTC) + timedelta(hours=1),
                "delay": timedelta(hours=1),
            },
            7200,
        ),
        ({"delay": timedelta(0)}, 0),
        ({"delay": timedelta(seconds=90.5)}, 90.5),
        ({"delay": LONGEST_DELAY}, LONGEST_DELAY.total_seconds()),
    ],
)
@WAYS
def test_when_it_may_be_claimed(way: Way, options: dict[str, Any], due_seconds: float) -> None:
    """A job is available after `delay`, counted from `available_at` if both are given."""
    now = {name: value() if callable(value) else value for name, value in options.items()}
    way(ConsumerFactory.create().channel.name, payload=b"x", **now)
    [(seconds,)] = query(
        "SELECT extract(epoch FROM available_at - now())::float8 FROM pulljobs_job"
        " WHERE priority = 0"
    )
    assert seconds == pytest.approx(due_seconds, abs=20)
    assert query("SELECT bool_and(available_at >= now()) FROM pulljobs_job") == [(True,)]


@WAYS
def test_each_day_of_a_delay_has_24_hours(way: Way) -> None:
    """A day of a delay has 24 hours, even if the clocks of the session's time zone change."""
    channel = ConsumerFactory.create().channel.name
    query("SET LOCAL TIME ZONE 'Europe/Berlin'")
    delays = [timedelta(days=days) for days in range(30, 360, 30)]
    for delay in delays:
        way(channel, payload=b"x", delay=delay)
    waits = query(
        "SELECT available_at - published_at FROM pulljobs_job AS job"
        " JOIN pulljobs_message AS message ON message.id = message_id"
        " WHERE job.priority = 0 ORDER BY 1"
    )
    assert waits == [(delay,) for delay in delays]


@pytest.mark.django_db(transaction=True)
def test_nothing_is_seen_before_the_commit_and_all_of_it_after() -> None:
    consumer = ConsumerFactory.create()
    with session() as other:
        other.autocommit = True
        with transaction.atomic(USING):
            publish(consumer.channel.name, b"x", message_id="1")
            assert seen(other) == (0, 0, 0)
        assert seen(other) == (1, 1, 1)


def seen(other: object) -> tuple[int, ...]:
    row = other.execute(  # type: ignore[attr-defined]  # a session
        "SELECT (SELECT count(*) FROM pulljobs_job), (SELECT count(*) FROM pulljobs_message),"
        " (SELECT count(*) FROM pulljobs_publication)"
    ).fetchone()
    return tuple(row)


@pytest.mark.django_db(transaction=True)
def test_a_rollback_leaves_nothing() -> None:
    consumer = ConsumerFactory.create()
    with transaction.atomic(USING):
        publish(consumer.channel.name, b"x", message_id="1")
        publish_many(consumer.channel.name, [Draft(payload=b"x", message_id=f"{n}") for n in "ab"])
        transaction.set_rollback(True, using=USING)
    assert counts() == NOTHING
    assert not publish(consumer.channel.name, b"x", message_id="1").duplicate


@pytest.mark.django_db(transaction=True)
def test_async_code_publishes_in_a_transaction_of_its_own() -> None:
    consumer = ConsumerFactory.create()
    receipt = async_to_sync(apublish)(consumer.channel.name, {"n": 1}, priority=4)
    assert Job.objects.get().pk == receipt.job_ids[0]
    assert Job.objects.get().priority == 4


@pytest.mark.django_db(transaction=True)
def test_async_code_publishes_many_or_none() -> None:
    name = ConsumerFactory.create().channel.name
    receipts = async_to_sync(apublish_many)(name, (Draft(payload=n, key="a") for n in range(3)))
    made = Job.objects.order_by("message_id").values_list("pk", flat=True)
    assert [id for receipt in receipts for id in receipt.job_ids] == list(made)
    before = contents()
    with pytest.raises(InvalidMessage):
        async_to_sync(apublish_many)(name, [b"x", Draft(payload=b"x", key="")])
    assert contents() == before


def test_many_in_order() -> None:
    """`publish_many` returns the receipts in the order of the messages."""
    consumer = ConsumerFactory.create()
    receipts = publish_many(
        consumer.channel.name, [Draft(payload={"n": 0}, priority=3), {"n": 1}, "2", b"3"]
    )
    payloads = dict(query("SELECT id, convert_from(payload, 'UTF8') FROM pulljobs_message"))
    assert [payloads[receipt.message_id] for receipt in receipts] == [
        '{"n": 0}',
        '{"n": 1}',
        "2",
        "3",
    ]
    assert len({receipt.job_ids[0] for receipt in receipts}) == 4


def test_many_from_a_generator_in_several_batches() -> None:
    consumer = ConsumerFactory.create()
    receipts = publish_many(consumer.channel.name, (json.dumps(n) for n in range(2_345)))
    assert len(receipts) == Job.objects.count() == Message.objects.count() == 2_345


def test_many_large_ones_in_batches_of_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch ends before a payload that would exceed its limit. A larger payload goes alone."""
    batches: list[list[int]] = []
    write = messages.publish

    def spy(using: str, channel: str, batch: list[NewMessage], **options: Any) -> Any:
        batches.append([len(message.payload) for message in batch])
        return write(using, channel, batch, **options)

    monkeypatch.setattr(messages, "publish", spy)
    monkeypatch.setattr(publishing, "BATCH_BYTES", 10)
    sizes = [4, 6, 0, 1, 11, 3, 8, 10, 10, 0]
    receipts = publish_many(ConsumerFactory.create().channel.name, [b"x" * n for n in sizes])
    assert batches == [[4, 6, 0], [1], [11], [3], [8], [10], [10, 0]]
    stored = Message.objects.in_bulk([receipt.message_id for receipt in receipts])
    assert [len(stored[receipt.message_id].payload) for receipt in receipts] == sizes


def test_many_from_a_generator_that_reads_the_database_itself() -> None:
    """A generator may run queries of its own, because none of it runs while a batch is written."""
    consumer = ConsumerFactory.create()

    def drafts() -> Iterator[bytes]:
        for number in range(2 * BATCH + 1):
            if number % BATCH == 0:
                assert list(Consumer.objects.iterator()) == [consumer]
            yield b"%d" % number

    receipts = publish_many(consumer.channel.name, drafts())
    stored = Message.objects.in_bulk([receipt.message_id for receipt in receipts])
    payloads = [int(stored[receipt.message_id].payload) for receipt in receipts]
    assert payloads == list(range(2 * BATCH + 1))


def test_a_bad_draft_among_later_ones_leaves_nothing() -> None:
    channel = ConsumerFactory.create().channel
    with pytest.raises(InvalidMessage):
        publish_many(channel.name, [*[b"x"] * (BATCH + 5), object()])
    assert counts()["pulljobs_message"] == 0


def test_none_of_nothing() -> None:
    """`publish_many` of an empty list returns an empty list."""
    assert publish_many(ChannelFactory.create().name, []) == []
