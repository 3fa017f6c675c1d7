"""Subscriptions of a worker: consumers come, go and change while it runs."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest
from pytest_django import DjangoAssertNumQueries

from pulljobs import handlers
from pulljobs.conf import settings
from pulljobs.engine.run_times import RunTime
from pulljobs.handlers import ClaimedJob, Handler, handler
from pulljobs.models import Consumer, LimitGroup
from pulljobs.storage import sessions, statements
from pulljobs.worker import subscriptions
from pulljobs.worker.event_loop import EventLoop
from pulljobs.worker.push_delivery import PushDelivery, PushPool
from pulljobs.worker.result_buffer import ResultBuffer
from pulljobs.worker.subscriptions import ConsumerSubscription, Subscriptions
from tests.factories import USING, ChannelFactory, ConsumerFactory
from tests.handling import registry_of_its_own
from tests.sessions import Thread, query, wait_until
from tests.worker.claiming import limits, unclaimed

pytestmark = pytest.mark.django_db
URL = "http://127.0.0.1:9/"


class UnusedPool:
    """Job pool that never gets a job."""

    reports_room = False

    def room(self, run_time: RunTime) -> int:
        return 1

    def take(self, jobs: Sequence[ClaimedJob]) -> None:
        raise AssertionError("nothing is claimed here")


_loops: list[EventLoop] = []


def push_delivery(
    on_room: Callable[[PushPool], None] = lambda pool: None, **changed: Any
) -> PushDelivery:
    _loops.append(EventLoop())
    return PushDelivery(limits(**changed), _loops[-1], ResultBuffer(), on_room)


@pytest.fixture(autouse=True)
def _end_loops() -> Iterator[None]:
    yield
    while _loops:
        loop = _loops.pop()
        loop.start()
        loop.stop()


def subscriptions_of(deliveries: PushDelivery | None = None, **changed: Any) -> Subscriptions:
    return Subscriptions(
        limits(**changed),
        UUID(int=1),
        threads=UnusedPool(),
        tasks=UnusedPool(),
        push_delivery=deliveries,
    )


def pushed(**fields: Any) -> Consumer:
    return ConsumerFactory.create(type=Consumer.Type.PUSH, callback_url=URL, **fields)


def via_of(subscriptions: Sequence[ConsumerSubscription]) -> dict[str, str]:
    return {
        subscription.puller.consumer.name: str(subscription.puller.via)
        for subscription in subscriptions
    }


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "READ_EVERY", -1.0)


def test_a_consumer_with_a_new_type_is_served_from_the_next_read_on() -> None:
    """A consumer with a new type is served by that type. Others keep their subscriptions."""
    channel = ChannelFactory.create(name="c")
    other = pushed(name="other")
    with registry_of_its_own():
        handler(channel="c", consumer="both")(lambda job: None)
        consumer = ConsumerFactory.create(channel=channel, name="both", callback_url=URL)
        served = subscriptions_of(push_delivery())
        first = served.current()
        assert via_of(first) == {"both": "worker", "other": "push"}
        assert served.current() is first
        for type, via in ((Consumer.Type.PUSH, "push"), (Consumer.Type.PULL, "worker")):
            consumer.type = type
            consumer.save()
            assert via_of(served.current()) == {"both": via, "other": "push"}
        kept = {subscription.puller.consumer.name: subscription for subscription in first}
        assert (
            next(each for each in served.current() if each.puller.consumer == other)
            is kept["other"]
        )


def test_consumers_are_read_again_only_after_a_change(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    """Consumers are read only after a change of one or of its channel. Else no query runs."""
    with registry_of_its_own():
        consumer = pushed(name="a")
        served = subscriptions_of(push_delivery())
        [before] = served.current()
        with django_assert_num_queries(0, using=USING):
            served.current()
        for changed in (consumer, consumer.channel):
            changed.name += "2"
            changed.save()
            [after] = served.current()
            assert after.handler.names == (consumer.channel.name, "a2")
            assert after is not before
            before = after


def test_changes_of_many_consumers_are_looked_for_on_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with registry_of_its_own():
        consumer = pushed(name="a")
        served = subscriptions_of(push_delivery())
        [first] = served.current()
        assert served.watch() is None
        monkeypatch.setattr(subscriptions, "MANY", 0)
        watch = served.watch()
        assert watch is not None
        consumer.callback_url += "new"
        consumer.save()
        assert served.current() == [first]
        assert watch.tick() == subscriptions.READ_EVERY
        [second] = served.current()
        assert second.puller.consumer.callback_url == consumer.callback_url


def test_consumers_come_and_go() -> None:
    with registry_of_its_own():
        served = subscriptions_of(push_delivery())
        assert via_of(served.current()) == {}
        consumer = pushed(name="new")
        assert via_of(served.current()) == {"new": "push"}
        Consumer.objects.filter(pk=consumer.pk).delete()
        assert via_of(served.current()) == {}


def test_a_changed_callback_makes_a_new_subscription_with_the_same_pool() -> None:
    """A changed URL makes a new subscription, whose pool still counts the deliveries under way."""
    consumer = pushed()
    with registry_of_its_own():
        served = subscriptions_of(push_delivery())
        [before] = served.current()
        consumer.callback_url = "http://127.0.0.1:10/"
        consumer.save()
        [after] = served.current()
    assert after is not before
    assert after.pool is before.pool
    assert after.handler.function is not before.handler.function


def test_without_its_packages_push_is_not_served_and_a_warning_names_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pushed(name="orders")
    with registry_of_its_own(), caplog.at_level("WARNING", logger="pulljobs.worker"):
        served = subscriptions_of(None)
        assert via_of(served.current()) == via_of(served.current()) == {}
    assert [record.getMessage() for record in caplog.records] == [
        "Consumer orders is of type push, which needs more packages: "
        "python -m pip install 'pulljobs[push]'"
    ]


def pool_of(deliveries: PushDelivery, **fields: Any) -> PushPool:
    return deliveries.pool(pushed(**fields))


def begin(pool: PushPool, deliveries: int) -> None:
    pool.own_count.begun += deliveries
    pool.host_count.begun += deliveries
    pool.total_count.begun += deliveries


def test_each_consumer_may_deliver_one_job_and_the_rest_is_shared() -> None:
    deliveries = push_delivery(PUSH_CONCURRENCY=10, PUSH_PER_CONSUMER=4, PUSH_PER_HOST=100)
    pools = [pool_of(deliveries) for _pool in range(4)]
    assert [pool.room(RunTime()) for pool in pools] == [4] * 4
    begin(pools[0], 4)
    assert [pool.room(RunTime()) for pool in pools] == [0, 2, 2, 2]
    begin(pools[1], 2)
    assert [pool.room(RunTime()) for pool in pools] == [0, 0, 1, 1]
    begin(pools[2], 1)
    assert [pool.room(RunTime()) for pool in pools] == [0, 0, 0, 1]


def test_the_limit_of_a_host_leaves_each_consumer_its_first_delivery() -> None:
    deliveries = push_delivery(PUSH_PER_CONSUMER=4, PUSH_PER_HOST=5)
    first, second = pool_of(deliveries), pool_of(deliveries)
    elsewhere = deliveries.pool(
        ConsumerFactory.create(type="push", callback_url="http://127.0.0.1:10/")
    )
    begin(first, 4)
    assert [pool.room(RunTime()) for pool in (first, second, elsewhere)] == [0, 1, 4]
    begin(second, 3)
    assert [pool.room(RunTime()) for pool in (first, second, elsewhere)] == [0, 0, 4]


@pytest.mark.parametrize(
    ("fields", "may"),
    [
        ({}, True),
        ({"exclusive_keys": True}, False),
        ({"max_in_flight": 3}, False),
        ({"rate": "5/s"}, False),
    ],
)
def test_only_claims_whose_loss_costs_a_redelivery_do_not_wait_for_the_disk(
    fields: dict[str, Any], may: bool
) -> None:
    pushed(**fields)
    with registry_of_its_own():
        [subscription] = subscriptions_of(push_delivery()).current()
    assert subscription.may_be_claimed_twice is may


def test_claims_of_members_of_a_group_wait_for_the_disk_and_for_settlements() -> None:
    pushed(limit_group=LimitGroup.objects.create(name="stripe-api", rate="5/s"))
    with registry_of_its_own():
        [subscription] = subscriptions_of(push_delivery()).current()
    assert not subscription.may_be_claimed_twice
    assert subscription.waits_for_settles


@pytest.mark.parametrize("is_fenced", [False, True])
def test_claims_for_handlers_wait_for_the_disk_unless_all_their_writes_name_their_lease(
    is_fenced: bool,
) -> None:
    plain = Handler(channel="c", consumer="c", function=lambda job: None, is_fenced=is_fenced)
    with registry_of_its_own():
        handlers.add(plain)
        [subscription] = subscriptions_of(push_delivery()).current()
    assert subscription.may_be_claimed_twice is is_fenced


@pytest.mark.own_session
@pytest.mark.django_db(transaction=True)
def test_commits_without_the_disk_are_set_and_reset_on_a_dedicated_connection_only() -> None:
    def setting(relaxed: bool) -> str:
        sessions.relax(USING, relaxed)
        return str(query("SHOW synchronous_commit")[0][0])

    def work() -> list[str]:
        before = [setting(True)]
        sessions.dedicate(settings().DATABASE)
        statements.run(USING, "leases_of_node", {"node_id": UUID(int=1)})
        return [*before, setting(True), setting(True), setting(False), setting(False)]

    assert Thread(work).result() == ["on", "off", "off", "on", "on"]


def test_a_full_pool_notifies_the_fetcher_when_a_delivery_has_ended() -> None:
    with_room: list[PushPool] = []
    deliveries = push_delivery(with_room.append)
    pool = pool_of(deliveries)
    assert pool.reports_room
    deliveries.release_waiting()
    loop = _loops.pop()
    loop.start()
    pool.take([unclaimed()])
    wait_until(lambda: bool(with_room))
    assert with_room == [pool]
    assert pool.own_count.at_work == 0
    loop.stop()
