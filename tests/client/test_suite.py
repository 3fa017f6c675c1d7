"""The sync and the async client behave equally on a broker in memory and on a live server."""

import math
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulljobs import ids
from pulljobs.client import (
    Backoff,
    Connection,
    Discard,
    Draft,
    LeaseLost,
    NotAllowed,
    NotFound,
    NotPublished,
    Producer,
    Retry,
    Snooze,
    Subscription,
)
from pulljobs.models import Consumer, Job
from pulljobs.models import Producer as ProducerRow
from tests.client.names import SHOP
from tests.client.worlds import Live, Side
from tests.sessions import PATIENCE_SECONDS

pytestmark = pytest.mark.processes
NOTHING = 0.3
"""Seconds to wait for messages that must not come."""


def test_a_message_arrives_as_it_was_published(side: Side) -> None:
    receipt = side.producer().publish(
        b"\xff\x00", key="k", priority=5, headers={"Lang": "de"}, content_type="image/png"
    )
    message = side.consumer().next()
    assert (message.payload, message.content_type) == (b"\xff\x00", "image/png")
    assert (message.key, message.priority, message.headers) == ("k", 5, {"Lang": "de"})
    assert (message.message_id, message.attempts) == (receipt.message_id, 1)
    assert abs(message.timestamp - datetime.now(UTC)) < timedelta(minutes=1)
    assert 20 < message.remaining <= 31


@pytest.mark.parametrize(
    ("payload", "arrives", "content_type"),
    [
        ("grüße", "grüße".encode(), "text/plain; charset=utf-8"),
        ({"order": 17}, b'{"order": 17}', "application/json"),
        (b"bytes", b"bytes", "application/octet-stream"),
    ],
)
def test_text_json_and_bytes_arrive_with_their_content_type(
    side: Side, payload: Any, arrives: bytes, content_type: str
) -> None:
    side.producer().publish(payload)
    message = side.consumer().next()
    assert (message.payload, message.content_type) == (arrives, content_type)


def test_fetch_gives_what_is_there_without_waiting(side: Side) -> None:
    """A fetch returns the messages that are there at once, by priority, even if too few."""
    side.producer().publish_many([Draft(payload=str(n), priority=n) for n in (1, 3, 2)])
    start = time.monotonic()
    messages = side.consumer().fetch(10, timeout=2 * PATIENCE_SECONDS)
    assert [message.payload for message in messages] == [b"3", b"2", b"1"]
    assert time.monotonic() - start < PATIENCE_SECONDS


def test_fetch_waits_for_the_first_message_and_no_longer_than_its_timeout(side: Side) -> None:
    consumer = side.consumer()
    start = time.monotonic()
    assert consumer.fetch(5, timeout=0.5) == []
    assert 0.3 < time.monotonic() - start < PATIENCE_SECONDS
    other = Side(side.world, is_async=False)
    later = threading.Timer(NOTHING, lambda: other.producer().publish("late"))
    later.start()
    [message] = consumer.fetch(5, timeout=PATIENCE_SECONDS)
    later.join()
    other.close()
    assert message.payload == b"late"


def test_fetch_of_more_than_the_broker_gives_at_once(side: Side) -> None:
    """A fetch above the limits of `info` pulls several times, because one pull would be refused."""
    side.producer().publish_many([str(n) for n in range(120)])
    messages = side.consumer().fetch(120)
    assert sorted(int(message.payload) for message in messages) == list(range(120))


def test_each_message_ends_by_its_own_outcome(side: Side) -> None:
    side.producer().publish_many(["ack", "nack", "later", "reject", "release"])
    consumer = side.consumer()
    by_payload = {message.payload: message for message in consumer.fetch(5)}
    by_payload[b"ack"].ack()
    by_payload[b"nack"].nack(0)
    by_payload[b"later"].nack(60)
    by_payload[b"reject"].reject("no such order")
    by_payload[b"release"].release()
    assert side.world.states() == {"DELIVERED": 1, "QUEUED": 3, "DEAD": 1}
    again = {message.payload: message.attempts for message in consumer.fetch(5)}
    assert again == {b"nack": 2, b"release": 1}


def test_the_reason_of_a_reject_is_kept(side: Side) -> None:
    side.producer().publish("x")
    side.consumer().next().reject("no such order")
    assert side.world.error() == "no such order"


def test_a_second_outcome_is_ignored(side: Side) -> None:
    side.producer().publish("x")
    message = side.consumer().next()
    message.ack()
    message.nack(0)
    message.ack()
    assert side.world.states() == {"DELIVERED": 1}


def test_without_a_delay_a_retry_waits_90_seconds_times_attempts(side: Side) -> None:
    side.producer().publish("x")
    consumer = side.consumer()
    consumer.next().nack()
    assert side.world.states() == {"QUEUED": 1}
    assert consumer.fetch(1, timeout=0) == []


def test_a_delay_below_0_is_none(side: Side) -> None:
    """A negative delay of a nack, or of `requeue_delay`, queues the message at once."""
    side.producer().publish("x")
    consumer = side.consumer(requeue_delay=lambda attempts: -1.0)
    consumer.next().nack(-90)
    consumer.next().nack()
    assert consumer.next().attempts == 3


def test_a_delay_that_is_no_number_is_refused_by_nack(side: Side) -> None:
    side.producer().publish("x")
    message = side.consumer().next()
    for delay in (math.nan, timedelta(seconds=5)):
        with pytest.raises(ValueError, match="number of seconds, not"):
            message.nack(delay)
    message.ack()
    assert side.world.states() == {"DELIVERED": 1}


def test_a_lost_lease_is_reported_and_other_messages_continue(side: Side) -> None:
    """An outcome of a message that another holder has claimed raises LeaseLost, without effect."""
    side.producer().publish("x")
    consumer = side.consumer()
    late = consumer.next()
    side.world.expire()
    holder = consumer.next()
    for say in (late.ack, late.in_progress):
        with pytest.raises(LeaseLost):
            say()
    assert late.lost
    holder.ack()
    assert side.world.states() == {"DELIVERED": 1}


def test_a_lease_is_renewed_when_asked_for(side: Side) -> None:
    """`in_progress` renews for the given seconds, and returns the seconds that are left."""
    side.producer().publish("x")
    message = side.consumer().next()
    message.progress(3, 10, "pages")
    assert 50 < message.in_progress(60) <= 60
    assert 50 < message.remaining <= 60


def test_statuses_are_no_messages(side: Side) -> None:
    """A pull of a paused consumer returns no message."""
    side.producer().publish("x")
    side.world.pause()
    assert side.consumer().fetch(3, timeout=NOTHING) == []


def test_many_end_in_one_request(side: Side) -> None:
    """`release_all` and `ack_all` return no failures. A message keeps the first of its outcomes."""
    side.producer().publish_many([str(n) for n in range(4)])
    consumer = side.consumer()
    messages = consumer.fetch(4)
    assert consumer.release_all(messages[:1]) == []
    assert consumer.ack_all(messages) == []
    assert side.world.states() == {"DELIVERED": 3, "QUEUED": 1}


def test_publishing_an_id_again_is_reported_and_does_nothing(side: Side) -> None:
    producer = side.producer()
    assert not producer.publish("first", message_id="m-1").duplicate
    assert producer.publish("second", message_id="m-1").duplicate
    assert side.world.states() == {"QUEUED": 1}


def test_a_producer_s_id_is_text_of_any_kind(live: Live) -> None:
    """A producer whose name has letters outside of ASCII can publish."""
    made = ProducerRow(name="größe")
    made.set_token("shop-token")
    made.save()
    with Producer(live.base_url, "orders", "größe", **SHOP) as producer:
        assert producer.publish("x").status == "accepted"


def test_a_receipt_names_the_jobs_whose_message_was_replaced(live: Live) -> None:
    Consumer.objects.update(max_queued_per_key=1, key_overflow="replace")
    with Producer(live.base_url, "orders", "shop", **SHOP) as producer:
        receipts = producer.publish_many([Draft(payload=text, key="k") for text in "ab"])
    replaced = ids.encode(Job.objects.get().pk)
    assert [receipt.replaced for receipt in receipts] == [(), (replaced,)]


def test_what_is_refused_does_not_stop_the_others(side: Side) -> None:
    """An empty payload is refused alone, and the other messages of its request are published."""
    producer = side.producer()
    receipts = producer.publish_many(["one", "", "two"])
    assert [receipt.status for receipt in receipts] == ["accepted", "invalid", "accepted"]
    with pytest.raises(NotPublished, match="not empty"):
        producer.publish("")
    assert side.world.states() == {"QUEUED": 2}


def test_large_bodies_are_sent_compressed(side: Side) -> None:
    """Messages whose bodies are large enough to be compressed arrive unchanged."""
    connection = side.world.connection(is_async=side.is_async)
    assert isinstance(connection, Connection)
    body = "grün " * 20_000
    side.producer().publish_many([body] * 3)
    messages = side.consumer().fetch(3)
    assert [message.payload.decode() for message in messages] == [body] * 3


def test_wrong_tokens_and_names_give_clear_errors(side: Side) -> None:
    with pytest.raises(NotAllowed, match="X-Broker-Channel-Token"):
        side.consumer(Subscription("orders", "census", "wrong", "wrong")).fetch()
    with pytest.raises(NotFound, match="no such channel"):
        side.consumer(Subscription("nowhere", "census", "a", "b")).fetch()
    with pytest.raises(NotAllowed, match="token"):
        side.producer(**{**SHOP, "channel_token": "wrong"}).publish("x")


def test_info_has_the_counts_and_limits_of_the_consumer(side: Side) -> None:
    side.producer().publish_many(["a", "b"])
    consumer = side.consumer()
    consumer.next()
    info = consumer.info()
    assert (info["NumQueued"], info["NumInFlight"], info["MaxBatch"]) == (1, 1, 100)


def test_a_consumer_handles_each_message_once(side: Side) -> None:
    side.producer().publish_many([str(n) for n in range(130)])
    seen: Counter[bytes] = Counter()

    def handle(message: Any) -> None:
        seen[message.payload] += 1
        if len(seen) == 130:
            side.running.stop()

    consumer = side.run(handle, max_in_flight=20, concurrency=3)
    assert set(seen.values()) == {1}
    assert side.world.states() == {"DELIVERED": 130}
    assert consumer.counts["delivered"] == 130


def test_how_handlers_end_their_messages(side: Side) -> None:
    """Return and `ack` deliver, Retry and an error retry, Discard and `reject` make it dead."""
    endings = ("return", "Retry", "Discard", "error", "reject", "ack")
    side.producer().publish_many(endings)
    seen: set[bytes] = set()

    def handle(message: Any) -> Any:
        seen.add(message.payload)
        if len(seen) == len(endings):
            side.running.stop()
        if message.payload == b"Retry":
            raise Retry(after=timedelta(hours=1))
        if message.payload == b"Discard":
            raise Discard("no use")
        if message.payload == b"error":
            raise ValueError("broken")
        if message.payload == b"reject":
            return message.reject("no good")
        return message.ack() if message.payload == b"ack" else None

    side.run(handle, max_in_flight=10)
    assert side.world.states() == {"DELIVERED": 2, "QUEUED": 2, "DEAD": 2}


def test_a_snoozed_message_comes_again_and_is_not_charged(side: Side) -> None:
    """A snooze queues the job after its delay, and counts neither as an attempt nor a failure."""
    side.producer().publish(b"x")
    attempts: list[int] = []

    def handle(message: Any) -> None:
        attempts.append(message.attempts)
        if len(attempts) < 4:
            raise Snooze(timedelta(seconds=0.1))
        side.running.stop()

    side.run(handle, max_attempts=2, backoff=Backoff(after=1))
    assert side.world.states() == {"DELIVERED": 1}
    assert attempts == [1, 1, 1, 1]


def test_an_invalid_outcome_of_a_handler_harms_no_other_message(side: Side) -> None:
    """A job with an invalid delay or reason is retried or rejected all the same."""
    endings = ("Retry", "nack", "error", "Discard", *map(str, range(20)))
    side.producer().publish_many(endings)
    seen: list[bytes] = []

    def handle(message: Any) -> Any:
        seen.append(message.payload)
        if len(seen) == len(endings):
            side.running.stop()
        if message.attempts > 1:
            return message.ack()
        if message.payload == b"Retry":
            raise Retry(after=timedelta(hours=-1))
        if message.payload == b"nack":
            return message.nack(-1)
        if message.payload == b"error":
            raise ValueError("broken")
        if message.payload == b"Discard":
            raise Discard(ValueError("broken"))  # type: ignore[arg-type]  # it happens
        return message.ack()

    off = Backoff(initial=0)
    side.run(handle, max_in_flight=30, requeue_delay=lambda attempts: math.nan, backoff=off)
    states = side.world.states()
    assert (states["DEAD"], states["INFLIGHT"]) == (1, 0)
    assert states["DELIVERED"] >= 20


def test_a_job_is_given_up_once_after_its_last_call(side: Side) -> None:
    """An error of `on_giving_up` does not keep the job from becoming dead."""
    side.producer().publish("bad")
    calls: list[int] = []
    given_up: list[bytes] = []

    def handle(message: Any) -> None:
        calls.append(message.attempts)
        raise ValueError("broken")

    def on_giving_up(message: Any) -> None:
        given_up.append(message.payload)
        side.running.stop()
        raise RuntimeError("of the callback")

    off = Backoff(initial=0)
    delays = {"requeue_delay": lambda attempts: 0.0, "backoff": off}
    side.run(handle, max_attempts=2, on_giving_up=on_giving_up, **delays)
    assert (calls, given_up) == ([1, 2], [b"bad"])
    assert side.world.states() == {"DEAD": 1}
    assert side.world.error() == "ValueError: broken"


def test_a_handler_may_keep_its_lease(side: Side) -> None:
    """A handler renews its own lease with `in_progress`, which an async handler awaits."""
    side.producer().publish("x")
    left: list[float] = []

    def handle(message: Any) -> Any:
        side.running.stop()
        renewed = message.in_progress(60)
        if not side.is_async:
            return left.append(renewed)

        async def wait() -> None:
            left.append(await renewed)

        return wait()

    side.run(handle)
    assert 50 < left[0] <= 60
    assert side.world.states() == {"DELIVERED": 1}


def test_on_stop_what_waits_goes_back_unharmed(side: Side) -> None:
    """After a stop, the running handler finishes, and waiting messages are released uncharged."""
    side.producer().publish_many([str(n) for n in range(5)])
    consumer = side.consumer()

    calls: list[bytes] = []

    def handle(message: Any) -> None:
        calls.append(message.payload)
        if len(calls) == 2:
            side.running.stop()

    side.run(handle, max_in_flight=5)
    assert side.world.states() == {"DELIVERED": 2, "QUEUED": 3}
    assert {message.attempts for message in consumer.fetch(5)} == {1}
