"""A bulk publish accepts, refuses and stores each row by the rules of `publish`."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from pulljobs.conf import settings
from pulljobs.errors import ConfigurationError, InvalidMessage, PublishError, UnknownChannel
from pulljobs.lake.models import BulkPublish, RejectedRow
from pulljobs.models import Channel, Consumer, Job, Message
from pulljobs.publishing import Draft, checked, publish, publish_many
from pulljobs.storage import invariants, listen
from pulljobs.storage.invariants import CheckLimits
from pulljobs.storage.listen import Listener
from pyspark_pulljobs import arrow_rows, chunks, rows
from pyspark_pulljobs.requests import Bounds
from tests.factories import USING, ConsumerFactory
from tests.lake import bulk
from tests.lake.bulk import SCHEMA, WAYS, batch
from tests.sessions import query

pytestmark = pytest.mark.django_db(transaction=True)
modes = pytest.mark.parametrize("mode", WAYS)
ZONE = re.compile(r"tzinfo=.*\)")
LONG_AGO = datetime(2021, 1, 1, tzinfo=UTC)
LIMITS = CheckLimits(
    rows=None, page_timeout=timedelta(seconds=20), overdue=timedelta(minutes=1), retention=None
)
LATER = datetime(2100, 1, 1, tzinfo=UTC)
STORED = """
SELECT message.payload, message.content_type, message.headers::text, message.key,
    message.priority, client_message_id, job.priority, job.key, state, retry_count, deliveries,
    CASE WHEN available_at > '2099-01-01' THEN available_at::text
        ELSE (available_at - published_at)::text END AS due
FROM pulljobs_message AS message JOIN pulljobs_job AS job ON message_id = message.id
WHERE message.channel_id = %s ORDER BY job.id
"""
GOOD: Sequence[dict[str, Any]] = (
    {},
    {"payload": "grün".encode(), "key": "a", "priority": -3, "message_id": "1"},
    {"key": "a", "message_id": "2", "headers": {"trace": "ü", "b": ""}},
    {"message_id": "1", "payload": b"a duplicate"},
    {"content_type": "text/xml", "delay": 3600.0},
    {"available_at": LATER, "delay": 60.0},
    {"available_at": datetime(2001, 1, 1, tzinfo=UTC)},
    {"payload": b"", "key": 'q"uo\\te', "headers": {'"\\': "{},"}},
)
BAD: dict[str, dict[str, Any]] = {
    "no payload": {"payload": None},
    "too large": {"payload": b"x" * (1024 * 1024 + 1)},
    "NUL in the key": {"key": "a\x00"},
    "an empty key": {"key": ""},
    "a key too long": {"key": "k" * 256},
    "an empty message id": {"message_id": ""},
    "NUL in a header": {"headers": {"a": "\x00"}},
    "too many headers": {"headers": {str(n): "" for n in range(65)}},
    "headers too large": {"headers": {"a": "x" * 16 * 1024}},
    "a line break in the content type": {"content_type": "text/plain\r\nX: y"},
    "a priority too high": {"priority": 32_768},
    "a delay in the past": {"delay": -1.0},
    "no number for a delay": {"delay": float("nan")},
    "a delay without end": {"delay": float("inf")},
    "a time too far off": {"available_at": datetime(9999, 12, 31, tzinfo=UTC)},
}


def draft(row: dict[str, Any]) -> Draft:
    fields = {"payload": b"x", **row}
    if "delay" in fields:
        fields["delay"] = timedelta(seconds=fields["delay"])
    return Draft(**fields)


def two_alike(**options: Any) -> tuple[Consumer, Consumer]:
    first, second = (ConsumerFactory.create(**options) for _ in range(2))
    return first, second


def stored(consumer: Consumer) -> list[tuple[Any, ...]]:
    return query(STORED, [consumer.channel_id])


@modes
def test_what_is_stored_is_what_publish_many_stores(mode: str) -> None:
    ours, theirs = two_alike(exclusive_keys=True)
    bulk.publish(ours.channel, [batch(*GOOD)], mode=mode)
    publish_many(theirs.channel.name, map(draft, GOOD))
    assert stored(ours) == stored(theirs)
    done = BulkPublish.objects.get()
    assert (done.rows, done.messages, done.jobs, done.duplicates) == (8, 7, 7, 1)


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_what_publish_refuses_is_refused_with_its_words(bad: dict[str, Any]) -> None:
    [chunk] = chunks.cut_chunks([batch(bad)], Bounds())
    [reject] = chunk.rejects
    assert chunk.messages() == []
    if bad.keys() & {"payload"} and bad["payload"] is None:
        assert "payload is NULL" in reject.error
        return
    try:
        expected = draft(bad)
    except (ValueError, OverflowError):
        assert "delay must be" in reject.error
        return
    with pytest.raises(PublishError) as refused:
        checked(expected, settings())
    assert reject.reason == type(refused.value).__name__
    assert ZONE.sub("", reject.error) == ZONE.sub("", str(refused.value))


def test_the_bounds_are_those_of_the_settings() -> None:
    for name in Bounds.__dataclass_fields__:
        assert getattr(Bounds(), name) == getattr(settings(), name)


@pytest.mark.parametrize("overflow", ["reject", "drop_oldest", "replace"])
@modes
def test_keys_are_bounded(mode: str, overflow: str) -> None:
    """A bulk publish applies `max_queued_per_key` and the overflow rule as `publish` does."""
    options = {"max_queued_per_key": 2, "key_overflow": overflow, "exclusive_keys": True}
    ours, theirs = two_alike(**options)
    sent = [{"key": key, "payload": str(n).encode()} for n, key in enumerate("aaabab")]
    bulk.publish(ours.channel, [batch(*sent[:3]), batch(*sent[3:])], mode=mode)
    publish_many(theirs.channel.name, map(draft, sent))
    of_both = [[row[:-1] for row in stored(consumer)] for consumer in (ours, theirs)]
    assert of_both[0] == of_both[1]
    full = BulkPublish.objects.get().key_full
    assert full == (2 if overflow == "reject" else 0)
    assert Job.objects.filter(consumer=ours, state="QUEUED").count() == 4


@modes
def test_refused_keys_are_kept_with_the_rejects(mode: str) -> None:
    """Rows of full keys are stored with invalid rows, with reason and payload."""
    consumer = ConsumerFactory.create(max_queued_per_key=1)
    sent = batch({"key": "a"}, {"key": "a", "payload": b"second"}, {"priority": 40_000})
    bulk.publish(consumer.channel, [sent], mode=mode, onBadRow="reject")
    assert Job.objects.count() == 1
    kept = RejectedRow.objects.order_by("reason")
    assert [row.reason for row in kept] == ["InvalidMessage", "KeyFull"]
    assert bytes(kept[1].payload or b"") == b"second"
    assert '"key": "a"' in kept[1].row
    done = BulkPublish.objects.get()
    assert (done.rows, done.messages, done.key_full, done.rejected) == (3, 1, 1, 1)


@modes
def test_bad_rows_stop_everything(mode: str) -> None:
    """A bad row stops the whole publish. The error counts bad rows by kind, without payloads."""
    consumer = ConsumerFactory.create()
    secret = b"secret" * 200_000
    good, bad = batch({}), batch({"priority": 40_000}, {"key": ""}, {"payload": secret}, {})
    with pytest.raises(InvalidMessage, match="3 rows can't be published") as stopped:
        bulk.publish(consumer.channel, [bad, good], mode=mode)
    error = str(stopped.value)
    assert "2 InvalidMessage" in error
    assert "1 PayloadTooLarge" in error
    assert "secret" not in error
    assert "\n" not in error
    assert ".." not in error
    assert Message.objects.count() == Job.objects.count() == RejectedRow.objects.count() == 0


@modes
def test_one_consumer_of_a_channel_only(mode: str) -> None:
    consumer = ConsumerFactory.create()
    ConsumerFactory.create(channel=consumer.channel, max_queued_per_key=1)
    sent = [batch({"key": "a"}, {"key": "a"})]
    bulk.publish(consumer.channel, sent, mode=mode, consumer=consumer.name)
    bulk.publish(consumer.channel, [batch({})], mode=mode, consumer=consumer.name)
    assert list(Job.objects.values_list("consumer", flat=True)) == [consumer.pk] * 3


@modes
def test_what_was_published_to_one_consumer_is_missed_by_no_other(mode: str) -> None:
    """The invariant "each consumer has its job" leaves out messages published to one consumer.

    It holds for messages to all consumers that were published before and after it.
    """
    consumer = ConsumerFactory.create()
    other = ConsumerFactory.create(channel=consumer.channel)
    Consumer.objects.update(created_at=LONG_AGO, changed_at=LONG_AGO)
    before = publish(consumer.channel.name, b"x").message_id
    bulk.publish(consumer.channel, [batch({}, {})], mode=mode, consumer=consumer.name)
    after = publish(consumer.channel.name, b"x").message_id
    assert invariants.check_once(USING, LIMITS).broken == {}
    Job.objects.filter(consumer=other).delete()
    assert invariants.check_once(USING, LIMITS).broken == {"consumer_has_its_job": {before, after}}


def test_what_a_sink_sent_to_one_consumer_is_missed_by_no_other() -> None:
    """The invariant `consumer_has_its_job` holds if records of a sink's old batches are deleted."""
    consumer = ConsumerFactory.create()
    ConsumerFactory.create(channel=consumer.channel)
    Consumer.objects.update(created_at=LONG_AGO, changed_at=LONG_AGO)
    bulk.publish(consumer.channel, [batch({})], consumer=consumer.name)
    bulk.publish(consumer.channel, [batch({})], consumer=consumer.name)
    first, _last = BulkPublish.objects.order_by("id")
    first.delete()
    assert invariants.check_once(USING, LIMITS).broken.keys() == {"consumer_has_its_job"}
    BulkPublish.objects.update(query_id=uuid4(), batch_id=200)
    assert invariants.check_once(USING, LIMITS).broken == {}


@modes
def test_who_waits_is_woken(mode: str) -> None:
    """A bulk publish notifies the waiters of its consumers."""
    consumer = ConsumerFactory.create()
    listener = Listener(USING)
    try:
        listen.wait(USING, [consumer.pk], uuid4(), timedelta(minutes=1))
        bulk.publish(consumer.channel, [batch({})], mode=mode)
        assert listener.receive(timedelta(seconds=60)) == {consumer.pk}
    finally:
        listener.close()


def test_text_is_stored_as_text() -> None:
    consumer = ConsumerFactory.create()
    schema = pa.schema({"payload": pa.string()})
    bulk.publish(consumer.channel, [batch({"payload": "grün"}, schema=schema)], schema=schema)
    message = Message.objects.get()
    assert bytes(message.payload).decode() == "grün"
    assert message.content_type == "text/plain; charset=utf-8"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"chanel": "x"}, "did you mean 'channel'"),
        ({"mode": "fast"}, "must be atomic or chunked"),
        ({"onBadRow": "ignore"}, "must be stop or reject"),
        ({"consumer": "missing"}, "no consumer 'missing'"),
        ({"producer": "missing"}, "no producer 'missing'"),
        ({"maxPayloadBytes": "many"}, "must be a number"),
        ({"dsn": "host=x password=y"}, "no password"),
        ({"publishId": "p" * 256}, "255 characters"),
        ({"publishId": "p\0"}, 'Option "publishId" has a NUL character'),
    ],
)
def test_a_wrong_option_is_refused_with_its_reason(options: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        bulk.writer(ConsumerFactory.create().channel, **options)


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        ({"payload": pa.binary(), "prio": pa.int32()}, "did you mean 'priority'"),
        ({"key": pa.string()}, "no column 'payload'"),
        ({"payload": pa.struct([("a", pa.int32())])}, r"to_json\(\)"),
        ({"payload": pa.binary(), "available_at": pa.timestamp("us")}, "must be timestamp"),
        ({"payload": pa.binary(), "original_job": pa.int64()}, "needs the option consumer"),
    ],
)
def test_a_wrong_column_is_refused_with_its_reason(schema: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        bulk.writer(ConsumerFactory.create().channel, schema=pa.schema(schema))


def test_a_channel_has_to_be_named() -> None:
    with pytest.raises(ConfigurationError, match='"channel" is missing'):
        bulk.writer(Channel())


def test_an_unknown_channel() -> None:
    """A bulk publish to a channel that does not exist is refused."""
    with pytest.raises(UnknownChannel, match="create it"):
        bulk.writer(Channel(name="nowhere"))


def test_many_chunks_of_rows_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 7)
    consumer = ConsumerFactory.create()
    sent = [{"payload": str(n).encode()} for n in range(50)]
    bulk.publish(consumer.channel, [batch(*sent[:20]), batch(*sent[20:40])], [batch(*sent[40:])])
    payloads = [bytes(row.payload) for row in Message.objects.order_by("id")]
    assert payloads == [row["payload"] for row in sent]
    assert SCHEMA.names[0] == "payload"


@pytest.mark.parametrize("name", ["key", "message_id", "headers"])
def test_text_that_is_no_utf8_is_a_bad_row(name: str) -> None:
    """Only rows with text that is no UTF-8, as Parquet may contain, are rejected."""
    schema = pa.schema({"payload": pa.binary(), name: pa.string()})
    values = pa.array([b"a", b"\xff", None], pa.binary()).view(pa.string())
    if name == "headers":
        values = pa.array([b"{}", b"\xff", None], pa.binary()).view(pa.string())
    sent = pa.RecordBatch.from_arrays([pa.array([b"x"] * 3), values], schema=schema)
    consumer = ConsumerFactory.create()
    bulk.publish(consumer.channel, [sent], schema=schema, onBadRow="reject")
    assert Message.objects.count() == 2
    assert f"{name} can't be read" in RejectedRow.objects.get().error


ROWS = {**{f"good {n}": row for n, row in enumerate(GOOD)}, **BAD}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_rows_that_pass_at_a_glance_are_those_that_pass_the_check(row: dict[str, Any]) -> None:
    """A row that skips the check of single rows becomes the same message as with that check."""
    read, limits = batch(row), Bounds()
    [plain] = arrow_rows.flag_plain_rows(read, limits)
    if plain:
        made = rows.make_message(arrow_rows.ArrowRows(read).row(0), limits)
        assert list(zip(*arrow_rows.ArrowRows(read).plain(0, 1).values(), strict=True)) == [made]
    edge = batch({"key": "k" * 255, "priority": -32_768, "message_id": "ü" * 255})
    assert arrow_rows.flag_plain_rows(edge, limits) == [True]


def test_chunks_are_bounded_by_rows_and_bytes_and_lose_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Chunks end at a bound of rows or bytes, also where plain rows and checked rows alternate."""
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 4)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 50)
    sizes = [0, 1, 1, 1, 1, 30, 30, 1, 60, 1, 1, 1, 1, 1, 1, 1, 1]
    sent = [
        {"payload": b"%d" % number * size, **({"headers": {"a": "b"}} if number % 5 == 3 else {})}
        for number, size in enumerate(sizes)
    ]
    made = list(chunks.cut_chunks([batch(*sent[:11]), batch(*sent[11:])], Bounds()))
    assert [
        (message.payload, message.headers) for chunk in made for message in chunk.messages()
    ] == [(row["payload"], row.get("headers", {})) for row in sent]
    assert [chunk.count for chunk in made] == [4, 3, 2, 4, 4]
    assert all(chunk.count == len(chunk.messages()) for chunk in made)
