"""Throttles of consumers: asked for by handlers and endpoints, respected by all processes."""

import time
from datetime import timedelta

import pytest

from pulljobs import operating
from pulljobs.handlers import ClaimedJob
from pulljobs.models import ArchivedJob, Consumer, Job, Node
from pulljobs.publishing import publish, publish_many
from pulljobs.storage import throttles
from tests.factories import USING, published
from tests.sessions import SLACK, query, session, wait_until
from tests.webhooks.conftest import Opened
from tests.webhooks.endpoint import OK, answering
from tests.worker.claiming import FlusherBench, claim_of
from tests.worker.processes import Stage
from tests.worker.test_passes import FetcherBench, WidePool
from tests.worker.test_push import pushed, pusher

MINUTE = 60.0
WAIT = 3
PROCESSES = 4
JOBS = 40
processes = pytest.mark.processes
pytestmark = pytest.mark.django_db(transaction=True)


def is_throttled() -> bool:
    return Consumer.objects.exclude(throttled_until=None).exists()


def until_all_serve() -> None:
    wait_until(lambda: Node.objects.filter(stopped_at=None).count() == PROCESSES)


@processes
@pytest.mark.parametrize("status", [429, 503])
def test_no_process_calls_an_endpoint_before_the_time_that_it_named(
    stage: Stage, endpoint: Opened, status: int
) -> None:
    busy = f"HTTP/1.1 {status} X\r\nRetry-After: {WAIT}\r\nContent-Length: 0\r\n\r\n"
    there = endpoint(answering(busy.encode(), OK))
    consumer = pushed(there.url)
    pusher(stage, "--processes", str(PROCESSES))
    until_all_serve()
    publish(consumer.channel.name, b"x")
    wait_until(is_throttled)
    publish_many(consumer.channel.name, [b"x"] * JOBS)
    wait_until(lambda: ArchivedJob.objects.filter(state="DELIVERED").count() == JOBS + 1)
    first, *others = there.received
    assert min(received.at for received in others) - first.at >= WAIT


@processes
@pytest.mark.parametrize("by", ["call", "retry"])
def test_no_process_starts_a_job_before_the_time_that_a_handler_named(
    stage: Stage, by: str
) -> None:
    stage.worker("--processes", str(PROCESSES))
    until_all_serve()
    stage.publish(throttle=WAIT, by=by)
    wait_until(is_throttled)
    stage.publish(JOBS, seconds=0)
    first, *others = stage.wait_for("started", 1 + JOBS + (by == "retry"))
    assert min(line.at for line in others) - first.at >= WAIT


def test_a_throttle_of_another_process_releases_jobs_that_have_not_started() -> None:
    bench = FetcherBench()
    consumer, pool = bench.add(30, WidePool)
    bench.fetcher.tick()
    [waiting, *_others] = pool.jobs
    assert not waiting.is_late_at(time.monotonic())
    throttles.throttle(USING, {consumer.pk: MINUTE})
    taken = len(pool.jobs)
    published(consumer)
    assert bench.fetcher.rotation.note_work([consumer.pk])
    bench.fetcher.tick()
    assert len(pool.jobs) == taken
    assert waiting.is_late_at(time.monotonic())


def test_nothing_is_claimed_while_a_throttle_waits_for_its_write() -> None:
    bench = FetcherBench()
    consumer, pool = bench.add(1)
    bench.fetcher.tick()
    pool.jobs[0].throttle(timedelta(minutes=1))
    published(consumer)
    bench.fetcher.rotation.note_work([consumer.pk])
    bench.fetcher.tick()
    assert len(pool.jobs) == 1
    assert not is_throttled()
    bench.buffer.throttles.write(USING)
    assert is_throttled()


def test_jobs_start_again_when_an_operator_ends_the_throttle() -> None:
    bench = FetcherBench()
    consumer, pool = bench.add(1)
    bench.fetcher.tick()
    pool.jobs[0].throttle(timedelta(minutes=1))
    bench.buffer.throttles.write(USING)
    query("UPDATE pulljobs_consumer SET throttled_until = NULL")
    published(consumer)
    bench.fetcher.rotation.note_work([consumer.pk])
    bench.fetcher.tick()
    [_first, second] = pool.jobs
    assert not second.is_late_at(time.monotonic())


def test_jobs_of_a_key_start_again_when_an_operator_ends_its_throttle() -> None:
    bench = FetcherBench()
    consumer, pool = bench.add(0)
    Consumer.objects.update(fair_by_key=True)
    published(consumer, key="a")
    bench.fetcher.tick()
    pool.jobs[0].throttle(timedelta(minutes=1), key=True)
    bench.buffer.throttles.write(USING)
    operating.pause(consumer, None)
    published(consumer, key="a")
    bench.fetcher.rotation.note_work([consumer.pk])
    bench.fetcher.tick()
    [_first, second] = pool.jobs
    assert not second.is_late_at(time.monotonic())


def flusher_of(count: int) -> tuple[FlusherBench, list[ClaimedJob]]:
    """Return a flusher and claimed jobs of one consumer, which are in flight."""
    claimed = claim_of(lambda job: None, count)
    bench = FlusherBench(claimed)
    [consumer] = Consumer.objects.all()
    for job in claimed:
        job._grant.throttle = bench.buffer.throttles.get(consumer.pk)
    return bench, claimed


def test_a_throttle_is_written_before_the_outcomes_and_only_for_the_rest_of_its_time() -> None:
    bench, [first, second] = flusher_of(2)
    first.throttle(timedelta(minutes=1))
    second.throttle(timedelta(seconds=1))
    bench.buffer.release(first)
    bench.flusher.tick()
    assert Job.objects.get(id=first.id).state == "QUEUED"
    [(left,)] = query(
        "SELECT date_part('epoch', throttled_until - clock_timestamp()) FROM pulljobs_consumer"
    )
    assert MINUTE - SLACK - 20 < left <= MINUTE


def test_a_locked_consumer_delays_its_throttle_and_no_outcome() -> None:
    bench, [job] = flusher_of(1)
    with session() as other:
        other.execute("SELECT FROM pulljobs_consumer FOR UPDATE")
        job.throttle(timedelta(minutes=1))
        bench.buffer.release(job)
        bench.flusher.tick()
        assert Job.objects.get(id=job.id).state == "QUEUED"
        assert not is_throttled()
        other.commit()
    wait_until(lambda: bench.flusher.tick() >= 0 and is_throttled())
