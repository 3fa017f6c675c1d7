"""A running stream ends the leases of a query that was killed."""

import pytest

from pulljobs.models import Consumer, Job, Lease
from pyspark_pulljobs import reaping
from tests.factories import ConsumerFactory, published
from tests.lake.streams import source
from tests.sessions import pass_time, session, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _reaps_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaping, "INTERVAL_SECONDS", 0.1)


@pytest.fixture
def killed() -> Consumer:
    """Consumer whose jobs are claimed by a dead driver, under expired leases."""
    consumer = ConsumerFactory.create()
    published(consumer, 25)
    with source(consumer) as query_of_killed:
        query_of_killed.plan()
    pass_time()
    return consumer


def queued(consumer: Consumer) -> int:
    return Job.objects.filter(consumer=consumer, state="QUEUED").count()


def test_a_running_stream_gives_back_the_jobs_of_a_killed_query(killed: Consumer) -> None:
    assert queued(killed) == 15
    with source(ConsumerFactory.create()):
        wait_until(lambda: queued(killed) == 25)
    assert not Lease.objects.exists()


def test_a_locked_job_delays_only_itself(killed: Consumer) -> None:
    held = Job.objects.filter(consumer=killed, state="INFLIGHT").earliest("pk")
    with session() as other, source(ConsumerFactory.create()):
        other.execute("SELECT FROM pulljobs_job WHERE id = %s FOR UPDATE", [held.pk])
        wait_until(lambda: queued(killed) == 24)
        other.rollback()
        wait_until(lambda: queued(killed) == 25)


def test_the_end_of_a_query_is_the_end_of_its_reaper() -> None:
    with source(ConsumerFactory.create()) as running:
        link = running.reader.stream._links._link
        assert link is not None
        thread = link._reaper._thread
        assert thread.is_alive()
    wait_until(lambda: not thread.is_alive())
