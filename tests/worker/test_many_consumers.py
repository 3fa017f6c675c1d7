"""Hundreds of consumers: an idle worker polls rarely, and each consumer with jobs gets its turn."""

import time

import pytest
from django.db import transaction

from pulljobs.models import ArchivedJob, Consumer, PullWaiter
from pulljobs.publishing import publish, publish_many
from tests.factories import USING
from tests.sessions import query, wait_until
from tests.worker.many.pull_handlers import MANY
from tests.worker.processes import Stage

pytestmark = pytest.mark.processes
SECONDS = 2


def transactions_a_second() -> float:
    before, at = transactions(), time.monotonic()
    wait_until(lambda: time.monotonic() > at + SECONDS)
    return (transactions() - before) / (time.monotonic() - at)


def transactions() -> int:
    query("SELECT pg_stat_clear_snapshot()")
    [(count,)] = query(
        "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
    )
    return int(count)


@pytest.mark.own_session
def test_an_idle_worker_does_not_poll_every_consumer_each_time(stage: Stage) -> None:
    stage.environment |= {"WORKER_APPS": "tests.worker.many"}
    worker = stage.worker().ready()
    wait_until(lambda: Consumer.objects.count() == MANY)
    publish("many-0", b"")
    stage.wait_for("ended")
    # Polls of each consumer would be more than one a second.
    wait_until(lambda: transactions_a_second() < MANY / 2)
    assert worker.stop() == 0


@pytest.mark.own_session
def test_a_publish_wakes_the_worker_and_does_not_wait_for_other_consumers(stage: Stage) -> None:
    """A publish wakes an idle worker, and its job need not wait for 6000 of another consumer."""
    stage.environment |= {"WORKER_APPS": "tests.worker.many"}
    worker = stage.worker("--max-fetch-interval", "600")
    wait_until(lambda: PullWaiter.objects.count() == MANY)
    publish("many-150", b"")
    stage.wait_for("ended")
    with transaction.atomic(USING):
        publish_many("many-1", [b""] * 6000)
        last = publish("many-2", b"").job_ids[0]
    wait_until(lambda: ArchivedJob.objects.filter(job_id=last).exists())
    order = [line.job for line in stage.history("ended")]
    assert order.index(last) < 5000
    assert worker.stop() == 0
