"""Whom a worker serves: read anew, for consumers come, go and change while it runs."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest

from pulljobs.conf import settings
from pulljobs.handlers import ClaimedJob, handler
from pulljobs.models import Consumer
from pulljobs.storage import statements
from pulljobs.worker import subscriptions
from pulljobs.worker.event_loop import EventLoop
from pulljobs.worker.push_delivery import Pushing, PushLane
from pulljobs.worker.result_buffer import Outbox
from pulljobs.worker.subscriptions import Roster, Source
from tests.factories import USING, ChannelFactory, ConsumerFactory
from tests.handling import registry_of_its_own
from tests.sessions import Thread, query, wait_until
from tests.worker.claiming import limits, unclaimed

pytestmark = pytest.mark.django_db
URL = "http://127.0.0.1:9/"


class Threads:
    calls_back = False

    def room(self) -> int:
        return 1

    def take(self, jobs: Sequence[ClaimedJob]) -> None:
        raise AssertionError("nothing is claimed here")


_loops: list[EventLoop] = []


def pushing(on_room: Callable[[PushLane], None] = lambda lane: None, **changed: Any) -> Pushing:
    _loops.append(EventLoop())
    return Pushing(limits(**changed), _loops[-1], Outbox(), on_room)


@pytest.fixture(autouse=True)
def _end_loops() -> Iterator[None]:
    yield
    while _loops:
        loop = _loops.pop()
        loop.start()
        loop.stop()


def roster_of(deliveries: Pushing | None = None, **changed: Any) -> Roster:
    return Roster(
        limits(**changed), UUID(int=1), threads=Threads(), tasks=Threads(), pushing=deliveries
    )


def pushed(**fields: Any) -> Consumer:
    return ConsumerFactory.create(type=Consumer.Type.PUSH, callback_url=URL, **fields)


def doors(sources: Sequence[Source]) -> dict[str, str]:
    return {source.puller.consumer.name: str(source.puller.via) for source in sources}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "READ_EVERY", -1.0)


def test_a_consumer_goes_by_its_type_from_the_next_look_on() -> None:
    """And back; one that did not change stays the same source, with its marks."""
    channel = ChannelFactory.create(name="c")
    other = pushed(name="other")
    with registry_of_its_own():
        handler(channel="c", consumer="both")(lambda job: None)
        consumer = ConsumerFactory.create(channel=channel, name="both", callback_url=URL)
        served = roster_of(pushing())
        first = served.sources()
        assert doors(first) == {"both": "worker", "other": "push"}
        assert served.sources() is first
        for type, via in ((Consumer.Type.PUSH, "push"), (Consumer.Type.PULL, "worker")):
            consumer.type = type
            consumer.save()
            assert doors(served.sources()) == {"both": via, "other": "push"}
        kept = {source.puller.consumer.name: source for source in first}
        assert (
            next(one for one in served.sources() if one.puller.consumer == other) is kept["other"]
        )


def test_consumers_come_and_go() -> None:
    with registry_of_its_own():
        served = roster_of(pushing())
        assert doors(served.sources()) == {}
        consumer = pushed(name="new")
        assert doors(served.sources()) == {"new": "push"}
        Consumer.objects.filter(pk=consumer.pk).delete()
        assert doors(served.sources()) == {}


def test_what_is_changed_of_a_delivery_makes_a_new_source_in_the_same_lane() -> None:
    """So that what it has under way still counts."""
    consumer = pushed()
    with registry_of_its_own():
        served = roster_of(pushing())
        [before] = served.sources()
        consumer.callback_url = "http://127.0.0.1:10/"
        consumer.save()
        [after] = served.sources()
    assert after is not before
    assert after.lane is before.lane
    assert after.handler.function is not before.handler.function


def test_without_what_it_needs_push_is_not_served_but_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pushed(name="told")
    with registry_of_its_own(), caplog.at_level("WARNING", logger="pulljobs.worker"):
        served = roster_of(None)
        assert doors(served.sources()) == doors(served.sources()) == {}
    assert [record.getMessage() for record in caplog.records] == [
        "Consumer told is pushed to: python -m pip install 'pulljobs[push]'"
    ]


def lane_of(deliveries: Pushing, **fields: Any) -> PushLane:
    return deliveries.lane(pushed(**fields))


def busy(lane: PushLane, deliveries: int) -> None:
    lane.tally.begun += deliveries
    lane.host.begun += deliveries
    lane.everybody.begun += deliveries


def test_each_consumer_may_have_one_and_the_rest_goes_to_those_with_more() -> None:
    deliveries = pushing(PUSH_CONCURRENCY=10, PUSH_PER_CONSUMER=4, PUSH_PER_HOST=100)
    lanes = [lane_of(deliveries) for _lane in range(4)]
    assert [lane.room() for lane in lanes] == [4] * 4
    busy(lanes[0], 4)
    assert [lane.room() for lane in lanes] == [0, 2, 2, 2]
    busy(lanes[1], 2)
    assert [lane.room() for lane in lanes] == [0, 0, 1, 1]
    busy(lanes[2], 1)
    assert [lane.room() for lane in lanes] == [0, 0, 0, 1]


def test_a_host_bounds_what_is_beyond_the_first() -> None:
    deliveries = pushing(PUSH_PER_CONSUMER=4, PUSH_PER_HOST=5)
    here, too = lane_of(deliveries), lane_of(deliveries)
    elsewhere = deliveries.lane(
        ConsumerFactory.create(type="push", callback_url="http://127.0.0.1:10/")
    )
    busy(here, 4)
    assert [lane.room() for lane in (here, too, elsewhere)] == [0, 1, 4]
    busy(too, 3)
    assert [lane.room() for lane in (here, too, elsewhere)] == [0, 0, 4]


@pytest.mark.parametrize(
    ("fields", "may"),
    [({}, True), ({"exclusive_keys": True}, False), ({"max_in_flight": 3}, False)],
)
def test_only_claims_whose_loss_costs_a_second_delivery_don_t_wait_for_the_disk(
    fields: dict[str, Any], may: bool
) -> None:
    pushed(**fields)
    with registry_of_its_own():
        [source] = roster_of(pushing()).sources()
    assert source.may_be_claimed_twice is may


def test_claims_for_handlers_wait_for_the_disk() -> None:
    with registry_of_its_own():
        handler(channel="c", consumer="c")(lambda job: None)
        [source] = roster_of(pushing()).sources()
    assert not source.may_be_claimed_twice


@pytest.mark.own_session
@pytest.mark.django_db(transaction=True)
def test_waiting_for_the_disk_is_left_and_taken_up_again_on_a_dedicated_connection_only() -> None:
    def asked(relaxed: bool) -> str:
        statements.relax(USING, relaxed)
        return str(query("SHOW synchronous_commit")[0][0])

    def work() -> list[str]:
        before = [asked(True)]
        statements.dedicate(settings().DATABASE)
        statements.run(USING, "leases_of_node", {"node_id": UUID(int=1)})
        return [*before, asked(True), asked(True), asked(False), asked(False)]

    assert Thread(work).result() == ["on", "off", "off", "on", "on"]


def test_a_full_lane_is_heard_of_when_a_delivery_has_ended() -> None:
    heard: list[PushLane] = []
    deliveries = pushing(heard.append)
    lane = lane_of(deliveries)
    assert lane.calls_back
    deliveries.give_back()
    loop = _loops.pop()
    loop.start()
    lane.take([unclaimed()])
    wait_until(lambda: bool(heard))
    assert heard == [lane]
    assert lane.tally.now == 0
    loop.stop()
