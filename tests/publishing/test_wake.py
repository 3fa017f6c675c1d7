"""Waiters are woken after the commit. Without a waiter nothing is sent."""

import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import DatabaseError, IntegrityError, connections, transaction

from pulljobs import operating
from pulljobs.engine import telemetry
from pulljobs.engine.telemetry import JobsPublished
from pulljobs.models import Consumer
from pulljobs.publishing import Draft, publish, publish_many
from pulljobs.storage import listen
from pulljobs.storage.listen import Listener
from pulljobs.storage.sessions import behind_pooler
from tests.factories import USING, ConsumerFactory, JobFactory
from tests.sessions import PATIENCE_SECONDS, counts, query

pytestmark = pytest.mark.django_db(transaction=True)
SHORT, LONG = timedelta(seconds=0.2), timedelta(seconds=PATIENCE_SECONDS)


@pytest.fixture
def listener() -> Iterator[Listener]:
    if behind_pooler(USING):
        pytest.skip("LISTEN needs a connection of its own")
    with closing(Listener(USING)) as opened:
        yield opened


def waiting(patience: timedelta = timedelta(minutes=1)) -> Consumer:
    consumer: Consumer = ConsumerFactory.create()
    listen.wait(USING, [consumer.pk], uuid4(), patience)
    return consumer


def test_a_waiter_is_woken(listener: Listener) -> None:
    consumer = waiting()
    publish(consumer.channel.name, b"x")
    assert listener.receive(LONG) == {consumer.pk}


def test_a_waiter_is_woken_by_each_publish(listener: Listener) -> None:
    consumer = waiting()
    for _publish in range(3):
        publish(consumer.channel.name, b"x")
        assert listener.receive(LONG) == {consumer.pk}
    assert listener.receive(SHORT) == set()


def test_a_woken_waiter_finds_the_job(listener: Listener) -> None:
    consumer = waiting()
    publish(consumer.channel.name, b"x")
    assert listener.receive(LONG) == {consumer.pk}
    for published in range(2, 12):
        thread = threading.Thread(target=_publish_elsewhere, args=(consumer.channel.name,))
        thread.start()
        assert listener.receive(LONG) == {consumer.pk}
        assert counts()["pulljobs_job"] == published
        thread.join()


def test_a_new_consumer_is_woken_with_the_one_before(listener: Listener) -> None:
    consumer = waiting()
    publish(consumer.channel.name, b"x")
    assert listener.receive(LONG) == {consumer.pk}
    new = ConsumerFactory.create(channel=consumer.channel)
    listen.wait(USING, [new.pk], uuid4(), timedelta(minutes=1))
    publish(consumer.channel.name, b"x")
    heard = listener.receive(LONG)
    while heard != {consumer.pk, new.pk}:
        assert (more := listener.receive(LONG))
        heard |= more


def test_a_failed_publish_raises_although_a_consumer_waits(listener: Listener) -> None:
    consumer = waiting()
    publish(consumer.channel.name, b"x")
    assert listener.receive(LONG) == {consumer.pk}
    query("ALTER TABLE pulljobs_job ADD CONSTRAINT refused CHECK (deliveries > 0) NOT VALID")
    try:
        with pytest.raises(IntegrityError):
            publish(consumer.channel.name, b"y")
    finally:
        query("ALTER TABLE pulljobs_job DROP CONSTRAINT refused")
    assert counts()["pulljobs_message"] == 1
    publish(consumer.channel.name, b"z")
    assert counts()["pulljobs_message"] == 2


@pytest.mark.usefixtures("listener")
def test_a_publish_on_a_closed_connection_raises_although_a_consumer_waits() -> None:
    """A publish on a connection that the server's loss has closed raises, and stores nothing."""
    consumer = waiting()
    for _publish in range(2):
        publish(consumer.channel.name, b"x")
    connections[USING].connection.close()
    try:
        with pytest.raises(DatabaseError):
            publish(consumer.channel.name, b"y")
    finally:
        connections[USING].close()
    assert counts()["pulljobs_message"] == 2


def _publish_elsewhere(channel: str) -> None:
    try:
        publish(channel, b"x")
    finally:
        connections[USING].close()


def test_a_transaction_managed_by_hand_may_be_waited_for(listener: Listener) -> None:
    """A commit by hand notifies no waiter, which finds the jobs at its next poll."""
    consumer = waiting()
    events: list[object] = []
    end = telemetry.record_with(events.append)
    transaction.set_autocommit(False, USING)
    try:
        publish(consumer.channel.name, b"x")
        publish(consumer.channel.name, b"x", key="a")
        publish(consumer.channel.name, b"x")
        assert events == [JobsPublished(consumer.channel.name, 1, 1)] * 3
        assert listener.receive(SHORT) == set()
        transaction.commit(USING)
    finally:
        end()
        transaction.rollback(USING)
        transaction.set_autocommit(True, USING)
    assert counts()["pulljobs_job"] == 3
    publish(consumer.channel.name, b"x")
    assert listener.receive(LONG) == {consumer.pk}


def test_only_after_the_commit(listener: Listener) -> None:
    consumer = waiting()
    with transaction.atomic(USING):
        publish(consumer.channel.name, b"x")
        publish_many(consumer.channel.name, [b"x"])
        assert listener.receive(SHORT) == set()
    assert listener.receive(LONG) == {consumer.pk}


def test_not_after_a_rollback(listener: Listener) -> None:
    consumer = waiting()
    with transaction.atomic(USING):
        publish(consumer.channel.name, b"x")
        transaction.set_rollback(True, using=USING)
    assert listener.receive(SHORT) == set()


def test_nothing_is_sent_without_a_waiter(listener: Listener) -> None:
    alone, overdue = ConsumerFactory.create(), waiting(timedelta(seconds=-1))
    publish(alone.channel.name, b"x")
    publish(overdue.channel.name, b"x")
    listen.wake(USING, [overdue.pk])  # as after a settlement, without an earlier look
    listen.wake(USING, [alone.pk, overdue.pk])
    assert listener.receive(SHORT) == set()


def test_a_consumer_is_notified_once_however_many_wait_for_it(listener: Listener) -> None:
    consumer = waiting()
    listen.wait(USING, [consumer.pk], uuid4(), timedelta(minutes=1))
    for others in [], [waiting().pk]:
        listen.wake(USING, [consumer.pk, *others])
        received = [listener.receive(LONG) for _consumer in (consumer, *others)]
        assert sorted(pk for each in received for pk in each) == sorted([consumer.pk, *others])
    assert listener.receive(SHORT) == set()


def test_a_notification_does_not_wait_for_the_disk() -> None:
    consumer, alone = waiting(), ConsumerFactory.create()
    for waking, synchronous in (alone, "on"), (consumer, "off"):
        with transaction.atomic(USING):
            listen.wake(USING, [waking.pk])
            assert query("SHOW synchronous_commit") == [(synchronous,)]
    publish(consumer.channel.name, b"x")
    assert query("SHOW synchronous_commit") == [("on",)]


def test_waiting_again_moves_the_time() -> None:
    consumer, node = ConsumerFactory.create(), uuid4()
    for _time in range(2):
        listen.wait(USING, [consumer.pk], node, timedelta(minutes=1))
    assert query("SELECT count(*) FROM pulljobs_pull_waiter") == [(1,)]


def test_a_duplicate_wakes_no_waiter(listener: Listener) -> None:
    consumer = ConsumerFactory.create()
    publish(consumer.channel.name, b"x", message_id="1")
    listen.wait(USING, [consumer.pk], uuid4(), timedelta(minutes=1))
    assert publish_many(consumer.channel.name, [Draft(payload=b"x", message_id="1")])[0].duplicate
    assert listener.receive(SHORT) == set()


def test_a_redrive_wakes(listener: Listener) -> None:
    job = JobFactory.create(state="DEAD")
    listen.wait(USING, [job.consumer.pk], uuid4(), timedelta(minutes=1))
    operating.redrive([job.id])
    assert listener.receive(LONG) == {job.consumer.pk}


def test_a_wake_that_fails_is_no_failed_publish() -> None:
    """A publish succeeds even if its waiters can't be notified, which happens after the commit."""
    consumer = ConsumerFactory.create()
    query("ALTER TABLE pulljobs_pull_waiter RENAME TO elsewhere")
    try:
        publish_many(consumer.channel.name, [b"x", b"y"])
        with transaction.atomic(USING):
            publish_many(consumer.channel.name, [b"x", b"y"])
    finally:
        query("ALTER TABLE elsewhere RENAME TO pulljobs_pull_waiter")
    assert counts()["pulljobs_job"] == 4


def test_who_came_to_wait_before_the_commit_is_woken(listener: Listener) -> None:
    """A waiter that registers between a publish and the end of its transaction is notified."""
    consumer = ConsumerFactory.create()
    with transaction.atomic(USING):
        publish(consumer.channel.name, b"x")
        registered = threading.Thread(target=_wait_elsewhere, args=(consumer.pk,))
        registered.start()
        registered.join()
    assert listener.receive(LONG) == {consumer.pk}


def _wait_elsewhere(consumer_id: int) -> None:
    try:
        listen.wait(USING, [consumer_id], uuid4(), timedelta(minutes=1))
    finally:
        connections[USING].close()


def test_the_event_is_emitted_after_the_commit() -> None:
    consumer = ConsumerFactory.create()
    events: list[object] = []
    end = telemetry.record_with(events.append)
    try:
        with transaction.atomic(USING):
            publish_many(consumer.channel.name, [b"x", b"y"])
            assert events == []
        assert events == [JobsPublished(consumer.channel.name, 2, 2)]
        with transaction.atomic(USING):
            publish(consumer.channel.name, b"x")
            transaction.set_rollback(True, using=USING)
        assert len(events) == 1
    finally:
        end()
