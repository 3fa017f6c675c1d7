"""Pulls of a `Consumer` from brokers in memory: how many, from which broker, and when."""

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import httpx
import pytest

from pulljobs.client import (
    Backoff,
    BadRequest,
    Connection,
    Consumer,
    LeaseLost,
    Message,
    NotAllowed,
    NotPullable,
    Refused,
    Retry,
    Subscription,
    session,
)
from pulljobs.client.broker import LONGEST_POLL
from pulljobs.client.room import Room
from pulljobs.engine.circuit import Circuit, Result
from pulljobs.errors import ConfigurationError
from tests.client.broker import FakeBroker, Request, gaps
from tests.client.names import SUBSCRIPTION
from tests.sessions import PATIENCE_SECONDS, Thread, wait_until

SOON = 0.05
OFF = Backoff(initial=0)


class Brokers(httpx.AsyncBaseTransport):
    """Transport to several brokers in memory, which are found by the host of the URL."""

    def __init__(self, brokers: Sequence[FakeBroker]) -> None:
        self.brokers = {f"b{number}": broker for number, broker in enumerate(brokers)}
        self.most_held = 0

    @property
    def urls(self) -> list[str]:
        return [f"http://{host}" for host in self.brokers]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        broker = self.brokers[request.url.host]
        response = await broker.answer_async(request)
        held = sum(broker.in_flight for broker in self.brokers.values())
        self.most_held = max(self.most_held, held)
        return response


def consumer_of(
    brokers: Sequence[FakeBroker], handler: Callable[[Any], Any], **options: Any
) -> tuple[Consumer, Brokers]:
    transport = Brokers(brokers)
    options.setdefault("base_urls", transport.urls)
    options.setdefault("subscription", SUBSCRIPTION)
    connection = Connection(transport=transport)
    return Consumer(handler, connection=connection, **options), transport


@contextmanager
def running(consumer: Consumer) -> Iterator[Consumer]:
    thread = Thread(consumer.run)
    try:
        yield consumer
    finally:
        consumer.stop()
        thread.result()


def nothing(message: Message) -> None:
    pass


def of_kind(kind: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    async def awaited(given: Any) -> None:
        function(given)

    return function if kind == "plain" else awaited


def filled(count: int) -> FakeBroker:
    broker = FakeBroker()
    broker.publish(count)
    return broker


def batches(broker: FakeBroker) -> list[int]:
    return [request.body["Batch"] for request in broker.asked("pull")]


def probes(broker: FakeBroker) -> list[Request]:
    """Return the pulls that ask for one message, except those that take back an earlier pull."""
    asked = broker.asked("pull")
    return [
        request
        for request in asked
        if request.body["Batch"] == 1 and "MaxBytes" not in request.body
    ]


def is_done(*brokers: FakeBroker) -> bool:
    return all(set(broker.states()) <= {"DELIVERED"} for broker in brokers)


def wait_for_lookups(broker: FakeBroker) -> None:
    """Wait until the broker has been asked for addresses two more times."""
    known = len(broker.asked("lookup"))
    wait_until(lambda: len(broker.asked("lookup")) >= known + 2)


def test_the_first_pull_asks_for_one_and_then_for_all_there_is_room_for() -> None:
    broker = filled(30)
    consumer, _ = consumer_of([broker], nothing, max_in_flight=20)
    with running(consumer):
        wait_until(lambda: is_done(broker))
    first, second, *_others = batches(broker)
    assert (first, 18 < second <= 20) == (1, True)


@pytest.mark.parametrize("limits", [{"MaxBatch": 7}, {"MaxInFlight": 7}])
def test_limits_of_the_broker_are_respected(limits: dict[str, Any]) -> None:
    broker = filled(40)
    broker.limits = limits | {"MaxExpires": 3.0}
    consumer, _ = consumer_of([broker], nothing, max_in_flight=20)
    with running(consumer):
        wait_until(lambda: is_done(broker))
    assert max(batches(broker)) == 7
    assert max(request.body.get("Expires", 0) for request in broker.asked("pull")) == 3.0
    assert consumer.counts["delivered"] == 40


def test_a_broker_gets_no_more_outcomes_at_once_than_it_accepts() -> None:
    broker = filled(9)
    broker.limits = {"MaxBatch": 4, "LeaseSeconds": 3.0}

    async def handle(message: Any) -> None:
        while len(broker.asked("renew")) < 3:
            await asyncio.sleep(0.01)

    consumer, _ = consumer_of([broker], handle, max_in_flight=9, concurrency=9, auto_renew=True)
    with running(consumer):
        wait_until(lambda: is_done(broker))
    assert max(len(request.body["Leases"]) for request in broker.asked("renew")) == 4
    assert max(len(request.body["Results"]) for request in broker.asked("ack")) <= 4
    assert consumer.counts["delivered"] == 9


@pytest.mark.parametrize("limits", [{"MaxBatch": 3}, {"MaxExpires": 1.0}])
def test_limits_that_become_lower_are_read_again(limits: dict[str, Any]) -> None:
    broker = filled(20)
    consumer, _ = consumer_of([broker], nothing, max_in_flight=10)
    with running(consumer):
        wait_until(lambda: is_done(broker))
        broker.limits = limits
        broker.publish(20, start=20)
        wait_until(lambda: is_done(broker) and len(broker.jobs) == 40)
        wait_until(lambda: len(broker.asked("info")) == 2)


def test_renewals_follow_limits_that_become_lower() -> None:
    broker = filled(9)
    broker.limits = {"LeaseSeconds": 2.0}

    async def handle(message: Any) -> None:
        if broker.in_flight == 9:
            broker.limits = {"LeaseSeconds": 2.0, "MaxBatch": 4}
        while 4 not in [len(request.body["Leases"]) for request in broker.asked("renew")]:
            await asyncio.sleep(0.01)

    consumer, _ = consumer_of([broker], handle, max_in_flight=9, concurrency=9, auto_renew=True)
    with running(consumer):
        wait_until(lambda: is_done(broker))
    assert consumer.counts["delivered"] == 9


def test_a_pull_that_is_refused_inside_of_the_limits_ends_the_run() -> None:
    broker = filled(1)
    refusal = httpx.Response(409, json={"detail": "Batch is above 0."})
    broker.failing = lambda request: refusal if request.path.endswith("/pull") else None
    consumer, _ = consumer_of([broker], nothing)
    with pytest.raises(BadRequest, match="Batch is above 0"):
        consumer.run()
    assert len(broker.asked("info")) == 2


def test_held_messages_never_exceed_max_in_flight() -> None:
    """At most `max_in_flight` messages are in flight at the broker, unconfirmed ones included."""
    broker = filled(300)
    consumer, transport = consumer_of([broker], nothing, max_in_flight=5, concurrency=8)
    with running(consumer):
        wait_until(lambda: is_done(broker))
    assert transport.most_held == 5


def test_two_brokers_share_the_limit_of_held_messages() -> None:
    """Nine of ten held messages may be from the busy broker, or five from each of two busy ones."""
    both, other = filled(60), filled(60)
    asked: list[list[int]] = []

    def handle(message: Message) -> None:
        asked.append(batches(both) + batches(other))
        time.sleep(0.001)

    consumer, transport = consumer_of([both, other], handle, max_in_flight=10)
    with running(consumer):
        wait_until(lambda: is_done(both, other))
        wait_until(lambda: batches(both)[-1] == batches(other)[-1] == 1)
        shared = len(batches(both))
        both.publish(200, start=60)
        wait_until(lambda: is_done(both))
    assert max(asked[60]) <= 6  # While there is something left at either.
    assert max(batches(both)[shared:]) >= 8
    assert transport.most_held <= 10


def test_a_broker_that_is_named_twice_is_one() -> None:
    broker = filled(3)
    broker.addresses = ["http://b0/"]
    urls = ["http://b0", "http://b0/", "http://b0"]
    consumer, _ = consumer_of([broker], nothing, base_urls=urls, lookup_urls=urls)
    with running(consumer):
        wait_until(lambda: is_done(broker))
        wait_until(lambda: bool(broker.asked("lookup")))
    assert len(broker.asked("info")) == len(broker.asked("lookup")) == 1


def test_brokers_take_turns_if_they_are_more_than_the_limit() -> None:
    brokers = [filled(3) for _ in range(4)]
    consumer, transport = consumer_of(brokers, nothing, max_in_flight=1)
    with running(consumer):
        wait_until(lambda: is_done(*brokers))
        for number in (3, 4):  # by one broker in another's turn, but not for long
            brokers[0].publish(1, start=number)
            wait_until(lambda: is_done(*brokers), LONGEST_POLL / 2)
    assert transport.most_held == 1


@pytest.mark.parametrize("auto_renew", [False, True])
def test_messages_of_a_broker_that_goes_away_count_until_their_leases_end(
    auto_renew: bool,
) -> None:
    """With a limit of one message, another broker gives one only after the lost lease has ended."""
    away, other = filled(1), filled(0)
    for broker in (away, other):
        broker.limits = {"LeaseSeconds": 1.0}

    def handle(message: Message) -> None:
        if not other.jobs:
            away.failing = lambda request: httpx.Response(503, json={"detail": "away"})
            other.publish(3)
            wait_until(lambda: not auto_renew or bool(away.asked("renew")))

    consumer, _ = consumer_of([away, other], handle, max_in_flight=1, auto_renew=auto_renew)
    with running(consumer):
        wait_until(lambda: is_done(other) and len(other.jobs) >= 3)
        assert away.states() == ["INFLIGHT"]
        away.failing = lambda request: None
        wait_until(lambda: away.states() == ["DELIVERED"])


def test_max_in_flight_can_be_changed_while_it_runs() -> None:
    """With 0, the consumer takes back its waiting pull, and sends no other until it is raised."""
    broker = FakeBroker()
    consumer, transport = consumer_of([broker], nothing, max_in_flight=5)
    with running(consumer):
        wait_until(lambda: len(broker.asked("pull")) == 1)
        consumer.set_max_in_flight(0)
        wait_until(lambda: len(broker.asked("pull")) == 2)
        [_pull, recall] = broker.asked("pull")
        assert recall.body["MaxBytes"] == 1
        broker.publish(30)
        time.sleep(SOON)
        assert (broker.in_flight, len(broker.asked("pull"))) == (0, 2)
        consumer.set_max_in_flight(3)
        wait_until(lambda: is_done(broker))
    assert transport.most_held == 3


def test_a_batch_ends_when_no_more_messages_can_come() -> None:
    """`is_starved` is True once no more messages can come, even if one broker is idle."""
    broker = filled(57)
    batch: list[Message] = []
    sizes: list[int] = []

    def handle(message: Message) -> None:
        message.detach()
        batch.append(message)
        if consumer.is_starved:
            sizes.append(len(batch))
            for received in batch:
                received.ack()
            batch.clear()

    consumer, transport = consumer_of([broker, FakeBroker()], handle, max_in_flight=21)
    with running(consumer):
        wait_until(lambda: is_done(broker))
    assert max(sizes) >= 8
    assert sum(sizes) == 57
    assert transport.most_held <= 21


@pytest.mark.parametrize("stops", ["plain", "async"])
@pytest.mark.parametrize("handles", ["plain", "async"])
@pytest.mark.parametrize("error", [None, ValueError("no disk"), SystemExit(1)])
def test_what_is_detached_is_given_back_at_the_end_unless_on_stop_ends_it(
    handles: str, stops: str, error: BaseException | None
) -> None:
    """Detached messages that `on_stop` leaves are released. Then its error, if any, is raised."""
    broker = filled(2)
    kept: list[Any] = []

    def handle(message: Any) -> None:
        message.detach()
        kept.append(message)

    def on_stop(consumer: Consumer) -> None:
        kept[0].ack()
        if error is not None:
            raise error

    consumer, _ = consumer_of(
        [broker], of_kind(handles, handle), max_in_flight=2, on_stop=of_kind(stops, on_stop)
    )
    raised: AbstractContextManager[Any] = pytest.raises(type(error)) if error else nullcontext()
    with raised, running(consumer):
        wait_until(lambda: len(kept) == 2)
    assert sorted(broker.states()) == ["DELIVERED", "QUEUED"]
    assert [job.deliveries for job in broker.jobs if job.state == "QUEUED"] == [0]


def away(request: Request) -> httpx.Response:
    return httpx.Response(503, json={"detail": "away"})


@pytest.mark.parametrize("returned", [IndexError, None, math.nan])
def test_a_reconnect_that_fails_loses_no_broker(
    returned: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = filled(1)
    broker.failing = lambda request: away(request) if len(broker.requests) <= 3 else None
    monkeypatch.setattr(session, "RECONNECT", lambda failures: 0.0)

    def reconnect(failures: int) -> Any:
        if returned is IndexError:
            raise returned
        return returned

    consumer, _ = consumer_of([broker], nothing, reconnect=reconnect)
    with running(consumer):
        wait_until(lambda: is_done(broker))
    assert "reconnect failed" in caplog.text


def test_a_back_off_whose_strategy_fails_loses_no_outcome(caplog: pytest.LogCaptureFixture) -> None:
    broker = filled(3)

    def handle(message: Message) -> None:
        if message.attempts == 1:
            raise ValueError("down")

    def strategy(seconds: float) -> float:
        raise ValueError("broken")

    backoff = Backoff(initial=SOON, longest=SOON, after=1, strategy=strategy)
    consumer, _ = consumer_of(
        [broker], handle, max_in_flight=3, backoff=backoff, requeue_delay=lambda attempts: 0.0
    )
    with running(consumer):
        wait_until(lambda: is_done(broker))
    assert "The strategy of backoff failed: ValueError: broken" in caplog.text


@pytest.mark.parametrize("handles", ["plain", "async"])
def test_a_handler_that_loses_another_message_is_charged(handles: str) -> None:
    """A LeaseLost of another message counts as a retry, because a release would repeat for ever."""
    broker = filled(1)

    def handle(message: Any) -> None:
        if message.attempts == 1:
            raise LeaseLost("of another pull")

    options: dict[str, Any] = {"requeue_delay": lambda attempts: 0.0, "backoff": OFF}
    consumer, _ = consumer_of([broker], of_kind(handles, handle), **options)
    with running(consumer):
        wait_until(lambda: is_done(broker))
    assert consumer.counts == {"received": 2, "retry": 1, "delivered": 1}


ENDS = [asyncio.CancelledError, SystemExit, KeyboardInterrupt, GeneratorExit]


@pytest.mark.parametrize("error", ENDS)
def test_whatever_an_async_handler_raises_the_others_go_on(error: type[BaseException]) -> None:
    broker = filled(3)

    async def handle(message: Any) -> None:
        if message.attempts == 1:
            raise error

    consumer, _ = consumer_of([broker], handle, requeue_delay=lambda attempts: 0.0, backoff=OFF)
    with running(consumer):
        wait_until(lambda: is_done(broker))
    assert consumer.counts == {"received": 6, "retry": 3, "delivered": 3}


@pytest.mark.parametrize("handles", ["plain", "async"])
@pytest.mark.parametrize("error", ENDS)
def test_whatever_on_giving_up_raises_the_others_go_on(
    error: type[BaseException], handles: str
) -> None:
    broker = filled(3)

    def give_up(message: Any) -> None:
        raise error

    def handle(message: Any) -> None:
        raise ValueError("broken")

    consumer, _ = consumer_of(
        [broker], of_kind(handles, handle), max_attempts=1, on_giving_up=give_up, backoff=OFF
    )
    with running(consumer):
        wait_until(lambda: broker.states() == ["DEAD"] * 3)


@pytest.mark.parametrize("resists", [False, True])
def test_an_async_handler_that_is_not_done_in_time_is_cancelled(resists: bool) -> None:
    """Its message is released, or delivered if the handler suppresses the cancellation."""
    broker = filled(2)

    async def handle(message: Any) -> None:
        consumer.stop()
        try:
            await asyncio.sleep(PATIENCE_SECONDS)
        except asyncio.CancelledError:
            if not resists:
                raise

    consumer, _ = consumer_of([broker], handle, graceful_timeout=SOON)
    Thread(consumer.run).result()
    assert broker.states() == ["DELIVERED" if resists else "QUEUED", "QUEUED"]
    assert [job.deliveries for job in broker.jobs] == [int(resists), 0]


LADDER = Backoff(initial=0.1, longest=0.8, after=3)
SLOW = 0.01
"""Run time of a handler in seconds, in which the result of the previous handler is counted."""


def test_failures_raise_the_back_off_step_by_step() -> None:
    """While single messages fail, the pause before the next one doubles from 0.2 s up to 0.8 s."""
    broker = filled(100)

    def handle(message: Message) -> None:
        time.sleep(SLOW)
        raise ValueError("the shop is down")

    consumer, _ = consumer_of(
        [broker], handle, max_in_flight=20, backoff=LADDER, requeue_delay=lambda attempts: 60.0
    )
    with running(consumer):
        wait_until(lambda: len(broker.asked("pull")) >= 8)
    waited = list(gaps([request.at for request in probes(broker)[1:]]))
    for measured, expected in zip(waited, [0.4, 0.8, 0.8], strict=False):
        assert expected <= measured < expected + PATIENCE_SECONDS
    assert len(waited) >= 2


def test_success_closes_the_circuit_step_by_step() -> None:
    """An open circuit pulls nothing, then one message, whose success permits full pulls again."""
    broker = filled(100)
    failed: list[float] = []

    def handle(message: Message) -> None:
        if len(failed) < LADDER.after:
            failed.append(time.monotonic())
            raise ValueError("down")
        time.sleep(SLOW)

    consumer, _ = consumer_of(
        [broker], handle, max_in_flight=10, backoff=LADDER, requeue_delay=lambda attempts: 0.0
    )
    with running(consumer):
        wait_until(lambda: is_done(broker))
    opened = failed[-1]
    probe = min(request.at for request in probes(broker) if request.at > opened)
    full = [r.at for r in broker.asked("pull") if r.at > opened and r.body["Batch"] > 1]
    assert min(full) > probe > opened + 0.2


def test_messages_that_fail_again_and_again_hold_back_no_others() -> None:
    """Two failing messages do not open a circuit that opens after three different ones."""
    broker = filled(2)

    def handle(message: Message) -> None:
        if message.json() < 2:
            raise ValueError("poison")

    consumer, _ = consumer_of(
        [broker],
        handle,
        max_in_flight=2,
        max_attempts=0,
        backoff=Backoff(initial=60, longest=60, after=3),
        requeue_delay=lambda attempts: 0.05,
    )
    with running(consumer):
        wait_until(lambda: min(job.deliveries for job in broker.jobs) > 3)
        broker.publish(5, start=2)
        wait_until(lambda: broker.states()[2:] == ["DELIVERED"] * 5)


def test_a_message_that_is_known_to_fail_is_given_back_for_another_probe() -> None:
    """A probe that is known to fail is released with a delay, to make another message the probe."""
    broker = filled(LADDER.after)
    known = frozenset(job.id for job in broker.jobs)

    def handle(message: Message) -> None:
        if message.id in known:
            raise ValueError("poison")

    consumer, _ = consumer_of(
        [broker],
        handle,
        max_in_flight=LADDER.after,
        max_attempts=0,
        backoff=LADDER,
        requeue_delay=lambda attempts: 0.0,
    )
    with running(consumer):
        wait_until(lambda: len(broker.asked("pull")) > LADDER.after)
        broker.publish(1, start=LADDER.after)
        wait_until(lambda: broker.states()[-1] == "DELIVERED")
        given_back = [
            result
            for request in broker.asked("ack")
            for result in request.body["Results"]
            if result["Outcome"] == "RELEASE"
        ]
        assert given_back
        assert all(result["DelaySeconds"] > 0 for result in given_back)


def test_neutral_outcomes_open_nothing() -> None:
    """A Retry without back-off is no failure for the circuit, so it never opens it."""
    broker = filled(30)

    def handle(message: Message) -> None:
        if message.attempts == 1:
            raise Retry(backoff=False)

    consumer, _ = consumer_of(
        [broker],
        handle,
        max_in_flight=5,
        backoff=Backoff(initial=60, longest=60, after=3),
        requeue_delay=lambda attempts: 0.0,
    )
    with running(consumer):
        wait_until(lambda: is_done(broker))


def test_a_handler_throttles_its_consumer_or_its_key() -> None:
    broker, hour = filled(3), timedelta(hours=1)
    throttles: dict[bytes, dict[str, Any]] = {b"0": {"throttle": True}, b"1": {"throttle": "key"}}

    def handle(message: Message) -> None:
        raise Retry(after=hour, **throttles.get(message.payload, {}))

    consumer, _ = consumer_of([broker], handle, max_in_flight=3, max_attempts=1)
    with running(consumer):
        wait_until(lambda: broker.states() == ["DEAD"] * 3)
    results = [result for request in broker.asked("ack") for result in request.body["Results"]]
    asked = [(result.get("ThrottleSeconds"), result.get("ThrottleKey")) for result in results]
    assert sorted(asked, key=str) == [(3600.0, False), (3600.0, True), (None, None)]


def test_what_a_pull_brings_into_a_block_goes_back_unharmed() -> None:
    """A pull that waits when the circuit opens is taken back, so it gets no later message."""
    broker, calls = filled(3), list[str]()

    def handle(message: Message) -> None:
        calls.append(message.id)
        if len(calls) == 3:
            wait_until(lambda: len(broker.asked("pull")) == 3)
        raise ValueError("down")

    consumer, _ = consumer_of(
        [broker],
        handle,
        max_in_flight=10,
        backoff=Backoff(initial=30, longest=60, after=3),
        requeue_delay=lambda attempts: 60.0,
    )
    with running(consumer):
        wait_until(lambda: any("MaxBytes" in r.body for r in broker.asked("pull")))
        broker.publish(5, start=3)
        time.sleep(SOON)
        assert [job.deliveries for job in broker.jobs] == [1, 1, 1, 0, 0, 0, 0, 0]


def test_a_success_from_before_the_circuit_opened_does_not_close_it() -> None:
    """A success of a message whose pull was sent before the circuit opened does not close it."""
    room = Room(10, Circuit(1, 120, 1))
    share = room.share()
    with room.asking(share, 5):
        room.count_result(room.circuit.ticket, "a", Result.FAILURE)
        ticket = room.received(share, 5)
    assert room.count_result(ticket, "b", Result.SUCCESS) is None
    assert room.circuit.level == 1


@pytest.mark.parametrize("auto_renew", [False, True])
def test_leases_are_renewed_only_on_request(auto_renew: bool) -> None:
    """With `auto_renew` a lease is renewed. Without, the broker gives the message out again."""
    broker = filled(1)
    broker.limits = {"LeaseSeconds": 6.0}
    calls: list[int] = []

    async def handle(message: Any) -> None:
        calls.append(message.attempts)
        while len(calls) < 2 and not broker.asked("renew"):
            await asyncio.sleep(0.01)

    consumer, _ = consumer_of(
        [broker], handle, auto_renew=auto_renew, max_in_flight=2, concurrency=2
    )
    with running(consumer):
        wait_until(lambda: broker.states() == ["DELIVERED"] or len(calls) == 2)
    assert len(calls) == (1 if auto_renew else 2)
    assert bool(broker.asked("renew")) is auto_renew


def test_results_of_lost_leases_are_discarded() -> None:
    """After a renewal shows that the lease is lost, the client sends no outcome of the message."""
    broker = filled(1)
    broker.limits = {"LeaseSeconds": 4.0}

    async def handle(message: Any) -> None:
        broker.jobs[0].lease_token = "of another"
        try:
            while not message.lost:
                await asyncio.sleep(0.01)
        finally:
            consumer.stop()

    consumer, _ = consumer_of([broker], handle, auto_renew=True)
    consumer.run()
    assert broker.asked("ack") == []
    assert consumer.counts["lost"] >= 1


def test_an_outcome_that_is_refused_holds_up_no_other() -> None:
    broker = filled(50)

    def refuse(request: Request) -> httpx.Response | None:
        if request.path.endswith("/ack") and "j7" in [
            result["ID"] for result in request.body["Results"]
        ]:
            return httpx.Response(400, json={"detail": "j7 is malformed"})
        return None

    broker.failing = refuse
    consumer, _ = consumer_of([broker], nothing, max_in_flight=50)
    with running(consumer):
        wait_until(lambda: broker.states().count("DELIVERED") == 49)
        wait_until(lambda: consumer.held == 0)
        broker.publish(1, start=50)
        wait_until(lambda: broker.states()[50] == "DELIVERED")
    assert consumer.counts["lost"] == 1


def test_a_message_whose_lease_is_over_is_not_begun() -> None:
    """A message whose lease ended while another handler blocked the event loop is not begun."""
    broker = filled(3)
    broker.limits = {"LeaseSeconds": 3.0}
    begun: list[float] = []

    async def handle(message: Any) -> None:
        begun.append(message.remaining)
        while len(begun) == 1 and broker.in_flight < 3:
            await asyncio.sleep(0.01)  # until the others wait for their turn
        if len(begun) == 1:
            ends = max(job.leased_until for job in broker.jobs)
            wait_until(lambda: time.monotonic() > ends)

    consumer, _ = consumer_of([broker], handle, max_in_flight=3)
    with running(consumer):
        wait_until(lambda: consumer.counts["release"] + consumer.counts["lost"] >= 2)
    assert min(begun) > 0


def test_sample_rate_never_drops_from_a_shared_queue() -> None:
    """A `sample_rate` drops messages, so it is refused unless `shared` is False."""
    with pytest.raises(ConfigurationError, match="others of this consumer wait for"):
        consumer_of([filled(1)], nothing, sample_rate=0.5)
    broker, seen = filled(200), list[str]()
    consumer, _ = consumer_of(
        [broker], lambda m: seen.append(m.id), max_in_flight=50, sample_rate=0.2, shared=False
    )
    with running(consumer):
        wait_until(lambda: is_done(broker))
    assert 10 < len(seen) < 100


def test_a_refusal_ends_the_run_with_its_reason() -> None:
    broker = filled(1)
    wrong = Subscription("orders", "census", "wrong", "wrong")
    consumer, _ = consumer_of([broker], nothing, subscription=wrong)
    with pytest.raises(NotAllowed, match="X-Broker-Channel-Token is missing or wrong"):
        consumer.run()
    assert len(broker.requests) == 1


def test_a_consumer_that_is_deleted_meanwhile_ends_after_its_work() -> None:
    """Handlers that have begun finish, and their messages are settled before the run raises."""
    broker, begun, refused = filled(1), list[str](), list[float]()

    def gone(request: Request) -> httpx.Response | None:
        if request.path.endswith("/pull") and begun:
            refused.append(request.at)
            return httpx.Response(410, json={"detail": "The consumer was deleted: stop pulling."})
        return None

    def handle(message: Message) -> None:
        begun.append(message.id)
        consumer.set_max_in_flight(1)  # The pull that waits is taken back, and refused.
        wait_until(lambda: bool(refused))

    broker.failing = gone
    consumer, _ = consumer_of([broker], handle, max_in_flight=2)
    with pytest.raises(NotPullable, match="was deleted"):
        consumer.run()
    assert broker.states() == ["DELIVERED"]


def test_what_is_held_of_a_consumer_turned_to_push_is_ended_after_a_reconnect() -> None:
    """The held message of a consumer that was turned to push is settled before the run raises."""
    broker, begun = filled(1), list[str]()
    pushed = httpx.Response(412, json={"detail": "Jobs are pushed to this consumer."})

    def handle(message: Message) -> None:
        begun.append(message.id)

    def turned(request: Request) -> httpx.Response | None:
        if not begun or request.path.endswith("/ack") and len(broker.asked("ack")) > 1:
            return None
        return away(request) if request.path.endswith("/ack") else pushed

    broker.failing = turned
    consumer, _ = consumer_of([broker], handle, reconnect=lambda failures: 0.0)
    with pytest.raises(NotPullable, match="are pushed"):
        Thread(consumer.run).result()
    assert broker.states() == ["DELIVERED"]


def test_a_pull_that_comes_too_often_waits_for_retry_after() -> None:
    """A pull refused with status 429 waits for `Retry-After`, and the client does not reconnect."""
    broker = filled(1)
    refused: list[float] = []

    def busy(request: Request) -> httpx.Response | None:
        if request.path.endswith("/pull") and not refused:
            refused.append(request.at)
            headers = {"Retry-After": "1"}
            return httpx.Response(429, json={"detail": "too many"}, headers=headers)
        return None

    broker.failing = busy
    consumer, _ = consumer_of([broker], nothing)
    with running(consumer):
        wait_until(lambda: is_done(broker))
    assert broker.asked("pull")[1].at - refused[0] >= 1
    assert len(broker.asked("info")) == 1


def test_brokers_are_found_by_lookup_and_lost_ones_only_that_way_again() -> None:
    """The brokers of all lookups are used, and a lost broker returns only through a lookup."""
    brokers = [filled(2), filled(2), FakeBroker()]
    consumer, transport = consumer_of(
        brokers, nothing, base_urls=(), lookup_urls=["http://b0", "http://b2"], lookup_interval=0.3
    )
    brokers[0].addresses = ["http://b0", "http://b1/"]
    brokers[2].failing = lambda request: httpx.Response(503, json={"detail": "away"})
    with running(consumer):
        wait_until(lambda: is_done(brokers[0], brokers[1]))
        refused: list[Request] = []

        def refuse(request: Request) -> httpx.Response:
            refused.append(request)
            return httpx.Response(503, json={"detail": "away"})

        brokers[0].addresses = ["http://b0"]
        brokers[1].failing = refuse
        brokers[1].publish(1, start=2)
        wait_until(lambda: bool(refused), 60)
        wait_for_lookups(brokers[0])  # a lookup that was under way may still have returned it
        known = len(brokers[1].requests)
        wait_for_lookups(brokers[0])
        assert len(brokers[1].requests) == known
        brokers[1].failing = lambda request: None
        brokers[0].addresses = ["http://b1", "http://b0"]
        wait_until(lambda: is_done(brokers[1]))
    assert transport.most_held <= 1


@pytest.mark.parametrize(
    "returned",
    [
        ["http://b1:99999"],
        ["ftp://b1", "b1", "", "http://b1..b"],
        [None, 7, {}],
        None,
        7,
    ],
)
def test_an_invalid_address_is_not_used(returned: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Invalid addresses of a lookup are logged and not used. A later valid address is used."""
    brokers = [FakeBroker(), filled(2)]
    brokers[0].addresses = returned
    consumer, _ = consumer_of(
        brokers, nothing, base_urls=(), lookup_urls=["http://b0"], lookup_interval=SOON
    )
    with running(consumer):
        wait_for_lookups(brokers[0])
        brokers[0].addresses = ["http://b1"]
        wait_until(lambda: is_done(brokers[1]))
    assert "http://b0 returned an address that is not used" in caplog.text


def test_tokens_that_go_by_TLS_go_nowhere_without(caplog: pytest.LogCaptureFixture) -> None:
    """An http address that a lookup by https returns, as behind a TLS proxy, is not used."""
    brokers = [FakeBroker(), filled(1), filled(2)]
    brokers[0].addresses = ["http://b1", "https://b2"]
    consumer, _ = consumer_of(brokers, nothing, base_urls=(), lookup_urls=["https://b0"])
    with running(consumer):
        wait_until(lambda: is_done(brokers[2]))
    assert brokers[1].requests == []
    assert "'http://b1', which is not used: tokens would go there in clear" in caplog.text


@pytest.mark.parametrize(
    "refusal",
    [
        httpx.Response(404, json={"detail": "no such channel"}),
        httpx.Response(403, json={"detail": "wrong token"}),
        httpx.Response(200, text="<html>"),
    ],
)
def test_a_lookup_that_refuses_ends_the_run_only_where_all_do(
    refusal: httpx.Response, caplog: pytest.LogCaptureFixture
) -> None:
    """The refusal of one lookup address is only logged. The run ends if all of them refuse."""
    brokers = [FakeBroker(), filled(2)]
    brokers[0].addresses = ["http://b1"]
    brokers[1].failing = lambda request: refusal if request.path == "/lookup" else None
    lookups = ["http://b0", "http://b1"]
    consumer, _ = consumer_of(brokers, nothing, base_urls=(), lookup_urls=lookups)
    with running(consumer):
        wait_until(lambda: is_done(brokers[1]))
    assert "Lookup at http://b1 failed" in caplog.text
    consumer, _ = consumer_of(brokers, nothing, base_urls=(), lookup_urls=lookups)
    brokers[0].failing = brokers[1].failing
    with pytest.raises(Refused):
        consumer.run()
