"""Wake-ups of an idle worker that polls only every ten minutes."""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from pulljobs.models import PullWaiter
from pulljobs.publishing import publish
from pulljobs.pulling import Puller
from tests.factories import USING, ConsumerFactory
from tests.sessions import PATIENCE_SECONDS, SLACK, Session, session, wait_until
from tests.worker.processes import Stage, Worker

PATIENT = ("--max-fetch-interval", "600")
SECOND = timedelta(seconds=1)


def idle(stage: Stage, *flags: str) -> Worker:
    worker = stage.worker(*PATIENT, *flags)
    wait_until(lambda: PullWaiter.objects.exists())
    return worker


@pytest.mark.own_session
@pytest.mark.processes
def test_publish_wakes_an_idle_worker(stage: Stage) -> None:
    stage.consumer()
    worker = idle(stage)
    for count in range(1, 6):
        with transaction.atomic(USING):
            stage.publish()
        committed = time.monotonic()
        assert stage.wait_for("started", count)[-1].at - committed < 1 + SLACK
    assert worker.stop() == 0


@pytest.mark.own_session
@pytest.mark.processes
def test_a_worker_is_registered_for_longer_than_it_sleeps(stage: Stage) -> None:
    begun = timezone.now()
    idle(stage)
    waiting = PullWaiter.objects.earliest("waiting_until").waiting_until
    assert waiting > begun + 600 * SECOND


@pytest.mark.own_session
@pytest.mark.processes
def test_delayed_job_starts_on_time(stage: Stage) -> None:
    stage.consumer()
    worker = idle(stage)
    published = time.monotonic()
    publish("script", b"", delay=2 * SECOND)
    [started] = stage.wait_for("started")
    assert 2 <= started.at - published < 3 + SLACK
    assert worker.stop() == 0


@pytest.mark.processes
@pytest.mark.parametrize(
    ("script", "strategy"), [({"after": 1.5}, "constant:60"), ({"fail": "x"}, "constant:1.5")]
)
def test_retry_starts_on_time(stage: Stage, script: dict[str, Any], strategy: str) -> None:
    stage.consumer(retry_strategy=strategy)
    stage.publish(**script)
    worker = stage.worker(*PATIENT)
    first, second = stage.wait_for("started", 2)[:2]
    assert 1.5 <= second.at - first.at < 2.5 + SLACK
    assert worker.stop() == 0


@pytest.mark.own_session
@pytest.mark.processes
def test_a_job_of_a_dead_worker_starts_when_its_retry_is_due(stage: Stage) -> None:
    consumer = stage.consumer(retry_strategy="constant:1")
    worker = idle(stage, "--reap-interval", "0.5")
    begun = time.monotonic()
    with transaction.atomic(USING):
        stage.publish()
        assert Puller(USING, consumer).claim(1, lease_duration=SECOND).taken
    [started] = stage.wait_for("started")
    assert 2 <= started.at - begun < 4 + SLACK
    assert worker.stop() == 0


@pytest.fixture
def listener(transactional_db: None) -> Iterator[Session]:
    with session() as other:
        other.autocommit = True
        other.execute("LISTEN pulljobs")
        yield other


@pytest.mark.own_session
def test_only_waiters_are_notified(listener: Session) -> None:
    """A publish to a consumer without a waiter, or with an expired one, sends no notification."""
    unwatched, expired, awaited = (ConsumerFactory.create() for _ in range(3))
    for consumer, minutes in ((expired, -1), (awaited, 1)):
        PullWaiter.objects.create(
            consumer_id=consumer.pk,
            node_id="00000000-0000-0000-0000-000000000001",
            waiting_until=timezone.now() + timedelta(minutes=minutes),
        )
    for consumer in (unwatched, expired, awaited):
        publish(consumer.channel.name, b"")
    payloads = [note.payload for note in listener.notifies(timeout=PATIENCE_SECONDS, stop_after=1)]
    assert payloads == [str(awaited.pk)]


@pytest.mark.own_session
def test_waiters_are_notified_after_the_commit_and_only_then(listener: Session) -> None:
    consumer = ConsumerFactory.create()
    PullWaiter.objects.create(
        consumer_id=consumer.pk,
        node_id="00000000-0000-0000-0000-000000000001",
        waiting_until=timezone.now() + timedelta(minutes=1),
    )
    with transaction.atomic(USING):
        publish(consumer.channel.name, b"")
        assert connection.run_on_commit
    [note] = listener.notifies(timeout=PATIENCE_SECONDS, stop_after=1)
    assert note.payload == str(consumer.pk)
