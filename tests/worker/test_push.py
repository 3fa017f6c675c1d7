"""Push consumers, served by `runpullworker` together with the others."""

import asyncio
import json
import time
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from pulljobs import ids, jobs, operating
from pulljobs.models import ArchivedJob, Consumer, Job, Lease
from pulljobs.publishing import publish, publish_many
from pulljobs.pulling import Puller
from pulljobs.signing import verify
from tests.factories import USING, ChannelFactory, ConsumerFactory
from tests.sessions import PATIENCE_SECONDS, SLACK, wait_until
from tests.webhooks.conftest import Opened
from tests.webhooks.endpoint import OK, Received, Writer, answering, slow
from tests.worker.processes import Stage, Worker

pytestmark = pytest.mark.processes
SECOND = timedelta(seconds=1)


def pushed(url: str, **fields: Any) -> Consumer:
    fields = {"type": Consumer.Type.PUSH, "callback_url": url, "retry_strategy": "5,30,60"} | fields
    return ConsumerFactory.create(**fields)


def pusher(stage: Stage, *flags: str, **settings: Any) -> Worker:
    allowed = {"PUSH_ALLOWED_NETWORKS": ["127.0.0.0/8"], **settings}
    return stage.worker(*flags, WORKER_PULLJOBS=json.dumps(allowed))


def test_job_is_posted_and_delivered(stage: Stage, endpoint: Opened) -> None:
    there = endpoint()
    consumer = pushed(there.url)
    secret, token = consumer.set_signing_secret(), consumer.set_token()
    consumer.save()
    worker = pusher(stage).ready()
    receipt = publish(
        consumer.channel.name, b"hello", headers={"X-A": "b"}, message_id="m1", priority=3
    )
    [job] = receipt.job_ids
    wait_until(lambda: jobs.get(job).state == "DELIVERED")
    [got] = there.received
    assert got.body == b"hello"
    assert got.header("X-Broker-Consumer-Token") == token
    assert got.header("X-Broker-Message-ID") == "m1"
    assert got.header("X-A") == "b"
    assert verify(secret, dict(got.headers), got.body) == ids.encode(job)
    view = jobs.get(job)
    assert (view.retry_count, view.deliveries, view.result) == (0, 1, None)
    assert not Lease.objects.exists()
    assert worker.stop() == 0
    assert token not in worker.log
    assert "hello" not in worker.log


def test_a_failed_delivery_is_retried_by_the_strategy_until_dead(
    stage: Stage,
    endpoint: Opened,
) -> None:
    there = endpoint(answering(b"HTTP/1.1 500 X\r\nContent-Length: 6\r\n\r\nbroken"))
    consumer = pushed(there.url, retry_strategy="constant:0.2", max_retries=2)
    [job] = publish(consumer.channel.name, b"x").job_ids
    pusher(stage)
    wait_until(lambda: jobs.get(job).state == "DEAD")
    view = jobs.get(job)
    assert (view.reason, view.retry_count, view.deliveries) == ("retries_exhausted", 2, 3)
    assert view.error == "HTTP 500 Internal Server Error: broken"
    assert len(there.received) == 3
    assert len({got.header("X-Request-ID") for got in there.received}) == 3


def test_retry_after_is_honoured(stage: Stage, endpoint: Opened) -> None:
    there = endpoint(
        answering(b"HTTP/1.1 429 X\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n", OK)
    )
    consumer = pushed(there.url, retry_strategy="constant:600")
    [job] = publish(consumer.channel.name, b"x").job_ids
    pusher(stage)
    wait_until(lambda: jobs.get(job).state == "DELIVERED")
    first, second = there.received
    assert second.at - first.at >= 2


def test_private_address_is_refused_unless_allowed(
    stage: Stage,
    endpoint: Opened,
) -> None:
    there = endpoint()
    consumer = pushed(there.url)
    [job] = publish(consumer.channel.name, b"x").job_ids
    pusher(stage, PUSH_ALLOWED_NETWORKS=[])
    wait_until(lambda: jobs.get(job).retry_count == 1)
    assert "PUSH_ALLOWED_NETWORKS" in (jobs.get(job).error or "")
    assert there.received == []


def test_claims_for_a_slow_consumer_never_exceed_its_deliveries(
    stage: Stage, endpoint: Opened
) -> None:
    """Jobs that a slow endpoint can't take yet stay in the queue, where other workers find them."""
    running, most, ended = [0], [0], [0]

    async def count(received: Received, writer: Writer) -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0.5)
        running[0] -= 1
        ended[0] += 1
        writer.write(OK)

    def claimed() -> int:
        written = (
            ArchivedJob.objects.count()
        )  # Read first, so that a job that moves is not counted twice.
        return written + Job.objects.filter(state="INFLIGHT").count()

    there = endpoint(count)
    consumer = pushed(there.url)
    publish_many(consumer.channel.name, [b"x"] * 20)
    pusher(stage, PUSH_PER_CONSUMER=4)
    wait_until(lambda: bool(there.received))
    while len(there.received) < 12:
        assert claimed() <= ended[0] + 4
    assert most == [4]


def test_flags_leave_push_consumers_to_other_workers(stage: Stage, endpoint: Opened) -> None:
    """`--no-push` leaves all push consumers to others, `--only` all but the named ones."""
    there = endpoint()
    chosen, other = pushed(there.url), pushed(there.url)
    every = [publish(consumer.channel.name, b"x").job_ids[0] for consumer in (chosen, other)]
    assert pusher(stage, "--no-push", "--burst").ended() == 0
    assert [jobs.get(job).state for job in every] == ["QUEUED", "QUEUED"]
    only = f"{chosen.channel.name}/{chosen.name}"
    assert pusher(stage, "--burst", "--only", only).ended() == 0
    assert [jobs.get(job).state for job in every] == ["DELIVERED", "QUEUED"]


@pytest.mark.django_db
def test_a_name_without_a_handler_is_an_error() -> None:
    with pytest.raises(CommandError, match="No handler serves unknown"):
        call_command("runpullworker", "--only", "unknown")


def test_a_new_or_changed_consumer_is_noticed(
    stage: Stage,
    endpoint: Opened,
) -> None:
    """A running worker notices a new push consumer, and a change of its URL and token."""
    first, second = endpoint(), endpoint()
    worker = pusher(stage).ready()
    consumer = pushed(first.url)
    publish(consumer.channel.name, b"1")
    wait_until(lambda: len(first.received) == 1)
    consumer.callback_url, token = second.url, consumer.set_token()
    consumer.save()
    while not second.received:
        [job] = publish(consumer.channel.name, b"2").job_ids
        assert jobs.wait(job, timeout=PATIENCE_SECONDS)
    assert len(first.received) < 200
    assert second.received[0].header("X-Broker-Consumer-Token") == token
    assert worker.stop() == 0


def test_after_a_change_to_pull_deliveries_finish_and_waiting_jobs_can_be_pulled(
    stage: Stage,
    endpoint: Opened,
) -> None:
    let_go = stage.directory / "let-go"

    async def wait(received: Received, writer: Writer) -> None:
        while not let_go.exists():
            await asyncio.sleep(0.01)
        writer.write(OK)

    there = endpoint(wait)
    consumer = pushed(there.url)
    every = [receipt.job_ids[0] for receipt in publish_many(consumer.channel.name, [b"x"] * 4)]
    worker = pusher(stage, PUSH_PER_CONSUMER=1)
    wait_until(lambda: len(there.received) == 1)
    consumer.type = Consumer.Type.PULL
    consumer.save()
    let_go.touch()
    wait_until(lambda: ArchivedJob.objects.count() == 1)
    claim = Puller(USING, consumer).claim(10)
    assert [row.id for row, _message in claim.jobs] == every[1:]
    assert worker.stop() == 0
    assert len(there.received) == 1


def test_after_a_change_to_push_waiting_jobs_are_pushed(stage: Stage, endpoint: Opened) -> None:
    """A job claimed before the change stays with its holder. The others are pushed."""
    there = endpoint()
    consumer = ConsumerFactory.create()
    publish_many(consumer.channel.name, [b"x"] * 3)
    held = Puller(USING, consumer).claim(1)
    worker = pusher(stage).ready()
    consumer.type, consumer.callback_url = Consumer.Type.PUSH, there.url
    consumer.save()
    wait_until(lambda: len(there.received) == 2)
    wait_until(lambda: Job.objects.count() == 1)
    assert held.taken
    assert Job.objects.get().lease_token == held.taken.lease_token
    assert not Puller(USING, consumer).claim(1).jobs
    assert worker.stop() == 0


@pytest.mark.own_session
def test_kill_ends_a_delivery_within_a_second(stage: Stage, endpoint: Opened) -> None:
    """A kill closes the connection of a push delivery within a second, and the job stays DEAD."""
    ended: list[float] = []

    async def wait(received: Received, writer: Writer) -> None:
        await received.reader.read()
        ended.append(time.monotonic())

    there = endpoint(wait)
    consumer = pushed(there.url, lease_duration=600 * SECOND)
    [job] = publish(consumer.channel.name, b"x").job_ids
    worker = pusher(stage).ready()
    wait_until(lambda: len(there.received) == 1)
    killed = time.monotonic()
    assert operating.kill([job], by="test").done == [job]
    wait_until(lambda: len(ended) == 1)
    assert ended[0] - killed < 1.5 + SLACK
    assert worker.stop() == 0
    assert (jobs.get(job).state, jobs.get(job).error) == ("DEAD", "killed by test")


def test_a_stop_lets_deliveries_end_and_releases_those_that_do_not(
    stage: Stage,
    endpoint: Opened,
) -> None:
    quick, never = endpoint(slow(1)), endpoint(slow(600))
    [first] = publish(pushed(quick.url).channel.name, b"x").job_ids
    [second] = publish(pushed(never.url).channel.name, b"x").job_ids
    worker = pusher(stage, "--graceful-timeout", "5")
    wait_until(lambda: len(quick.received) == len(never.received) == 1)
    worker.signal()
    assert worker.ended() == 0
    assert jobs.get(first).state == "DELIVERED"
    view = jobs.get(second)
    assert (view.state, view.retry_count, view.deliveries) == ("QUEUED", 0, 0)


def test_crash_of_the_worker_charges_no_delivery(stage: Stage, endpoint: Opened) -> None:
    """A crash of the process charges no push delivery, which runs no code of the project."""
    stage.consumer(max_retries=0)
    there = endpoint(slow(600))
    consumer = pushed(there.url)
    [job] = publish(consumer.channel.name, b"x").job_ids
    worker = pusher(stage).ready()
    wait_until(lambda: len(there.received) == 1)
    stage.publish(kill=True)
    wait_until(lambda: len(there.received) == 2)
    view = jobs.get(job)
    assert (view.retry_count, view.deliveries) == (0, 1)
    assert not Job.objects.get(id=job).suspect
    worker.kill_all()


def test_channel_delivers_to_pull_and_push_alike(stage: Stage, endpoint: Opened) -> None:
    there = endpoint()
    channel = ChannelFactory.create(name="script")
    ConsumerFactory.create(channel=channel, name="plain")
    pushed(there.url, channel=channel)
    stage.publish(3)
    assert pusher(stage, "--burst").ended() == 0
    assert len(there.received) == len(stage.history("ended")) == 3
    assert ArchivedJob.objects.filter(state="DELIVERED").count() == 6


def test_slow_endpoints_do_not_hold_up_quick_ones(stage: Stage, endpoint: Opened) -> None:
    """Jobs for quick endpoints are delivered at once while slow ones take all slots they can."""
    sluggish, quick = endpoint(slow(600), ports=30), endpoint(ports=5)
    for port in sluggish.ports:
        publish_many(pushed(f"http://127.0.0.1:{port}/").channel.name, [b"x"] * 30)
    channels = [pushed(f"http://127.0.0.1:{port}/").channel.name for port in quick.ports]
    pusher(stage, PUSH_CONCURRENCY=60)
    wait_until(lambda: len(sluggish.received) > 50)
    begun = time.monotonic()
    for number in range(20):
        publish(channels[number % 5], b"x")
        wait_until(lambda number=number: len(quick.received) == number + 1)  # type: ignore[misc]  # mypy can't type a default
    assert time.monotonic() - begun < 2 + SLACK
