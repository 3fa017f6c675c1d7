"""Answers that get lost, brokers that are away, resets and delays."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest

from pulljobs.client import (
    BadRequest,
    Connection,
    Consumer,
    Draft,
    LeaseLost,
    NotAllowed,
    NotFound,
    PullConsumer,
    Unreachable,
    exponential,
    flows,
    full_jitter,
    pulling,
)
from pulljobs.client.broker import EARLY_PAUSE
from pulljobs.client.calls import Answer, checked
from pulljobs.client.publishing import PATIENCE
from pulljobs.client.strategies import RECONNECT
from pulljobs.errors import InvalidMessage
from pulljobs.models import ArchivedJob, Job, Lease
from tests.client.broker import FakeBroker, Request, gaps
from tests.client.names import SUBSCRIPTION
from tests.client.proxy import proxy_before
from tests.client.serving import served_at
from tests.client.test_flow import consumer_of, filled, is_done, nothing, running
from tests.client.worlds import Live, Mocked, Side
from tests.sessions import PATIENCE_SECONDS, wait_until

Mock = tuple[Side, FakeBroker]

OUTAGE = float(os.environ.get("PULLJOBS_TEST_OUTAGE", "6"))
"""Seconds of refused connections. The waits are the client's own at 60, and shorter at less."""


def losing(broker: FakeBroker, what: str) -> None:
    """Make the broker lose the answer to the first request whose path ends with this text."""
    lost: list[Request] = []

    def loses(request: Request) -> bool:
        if not request.path.endswith(what) or lost:
            return False
        lost.append(request)
        return True

    broker.lost = loses


@pytest.fixture(params=["sync", "async"])
def mocked(request: pytest.FixtureRequest) -> Iterator[Mock]:
    world = Mocked()
    side = Side(world, is_async=request.param == "async")
    yield side, world.broker
    side.close()


def test_a_pull_whose_answer_was_lost_is_repeated_under_its_request_id(mocked: Mock) -> None:
    side, broker = mocked
    broker.publish(3)
    losing(broker, "pull")
    messages = side.consumer().fetch(3)
    first, second = broker.asked("pull")
    assert first.body["RequestID"] == second.body["RequestID"]
    assert [message.attempts for message in messages] == [1, 1, 1]
    assert broker.in_flight == 3


def test_a_repeat_lingers_for_what_is_left_of_the_time(mocked: Mock) -> None:
    """A long poll that was cut is repeated, and waits only until the time-out of the fetch."""
    side, broker = mocked

    def reset(request: Request) -> httpx.Response | None:
        if len(broker.asked("pull")) in (2, 3):  # Those that linger.
            wait_until(lambda: time.monotonic() - request.at > 0.4)
            raise httpx.ReadError("reset")
        return None

    broker.failing = reset
    assert side.consumer().fetch(1, timeout=2) == []
    _at_once, first, second, third = broker.asked("pull")
    assert {first.body["RequestID"]} == {second.body["RequestID"], third.body["RequestID"]}
    lingers = [request.body.get("Expires", 0.0) for request in (first, second, third)]
    assert lingers[0] - 0.4 >= lingers[1] >= lingers[2] + 0.4


def test_a_publish_whose_answer_was_lost_is_one_message_and_no_duplicate(mocked: Mock) -> None:
    side, broker = mocked
    losing(broker, "broadcast-batch")
    assert side.producer().publish("x").status == "accepted"
    assert len(broker.asked("broadcast-batch")) == 2
    assert len(broker.jobs) == 1


def test_what_is_above_the_limit_of_a_broker_is_sent_in_parts(mocked: Mock) -> None:
    side, broker = mocked
    broker.limits = {"MaxBatch": 3}
    receipts = side.producer().publish_many([str(number) for number in range(10)])
    assert [job.message["MessageID"] for job in broker.jobs] == [receipt[0] for receipt in receipts]
    consumer = side.consumer()
    assert consumer.ack_all(consumer.fetch(10)) == []
    assert broker.states() == ["DELIVERED"] * 10


def test_jobs_whose_rows_are_locked_are_settled_when_the_rows_are_free(mocked: Mock) -> None:
    """The other jobs are settled at once, and only outcomes of locked jobs are sent again."""
    side, broker = mocked
    broker.publish(3)
    broker.locked_jobs = {broker.jobs[1].id}
    consumer = side.consumer()
    messages = consumer.fetch(3)
    unlocking = threading.Timer(1.5, broker.locked_jobs.clear)
    unlocking.start()
    assert consumer.ack_all(messages) == []
    unlocking.join()
    assert broker.states() == ["DELIVERED"] * 3
    sizes = [len(request.body["Results"]) for request in broker.asked("ack")]
    assert sizes[0] == 3
    assert set(sizes[1:]) == {1}


def test_a_job_whose_row_stays_locked_can_be_settled_later(
    mocked: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling, "PATIENCE", 0.2)
    side, broker = mocked
    broker.limits = {"LeaseSeconds": 0.2}
    broker.publish(2)
    consumer = side.consumer()
    messages = consumer.fetch(2)
    broker.locked_jobs = broker.locked_leases = {broker.jobs[1].id}
    with pytest.raises(Unreachable, match="locked"):
        consumer.ack_all(messages)
    with pytest.raises(Unreachable, match="locked"):
        messages[1].in_progress()
    with pytest.raises(Unreachable, match="locked"):
        messages[1].ack()
    assert broker.states() == ["DELIVERED", "INFLIGHT"]
    broker.locked_jobs = set()
    messages[1].ack()
    assert broker.states() == ["DELIVERED"] * 2


def test_limits_that_become_lower_are_asked_for_again(mocked: Mock) -> None:
    side, broker = mocked
    broker.publish(14)
    consumer = side.consumer()
    messages = consumer.fetch(9)
    broker.limits = {"MaxBatch": 3}
    assert consumer.ack_all(messages) == []
    broker.limits = {"MaxBatch": 2}
    assert len(consumer.fetch(5)) == 5
    assert broker.states() == ["DELIVERED"] * 9 + ["INFLIGHT"] * 5
    assert len(broker.asked("info")) == 3


def test_outcomes_that_were_accepted_before_an_error_are_not_sent_again(mocked: Mock) -> None:
    """After a refused request, a repeat of the call sends only the outcomes of that request."""
    side, broker = mocked
    broker.publish(4)
    broker.limits = {"MaxBatch": 2}
    consumer = side.consumer()
    messages = consumer.fetch(4)
    refusal = httpx.Response(400, json={"detail": "not now"})

    def refuse(request: Request) -> httpx.Response | None:
        is_second = request.path.endswith("/ack") and len(broker.asked("ack")) == 2
        return refusal if is_second else None

    broker.failing = refuse
    with pytest.raises(BadRequest, match="not now"):
        consumer.release_all(messages)
    assert consumer.release_all(messages) == []
    assert broker.states() == ["QUEUED"] * 4
    assert len(broker.asked("ack")) == 3


def test_a_message_that_is_too_large_for_a_proxy_is_refused_alone(mocked: Mock) -> None:
    """A message that is too large for a proxy is refused, and others of its request are not."""
    side, broker = mocked
    too_large = httpx.Response(413, json={"detail": "too large"})
    broker.failing = lambda request: too_large if "a large one" in str(request.body) else None
    receipts = side.producer().publish_many(["first", "a large one", "last"])
    assert [receipt.status for receipt in receipts] == ["accepted", "too_large", "accepted"]
    assert [job.message["MessageID"] for job in broker.jobs] == [receipts[0][0], receipts[2][0]]


def test_nothing_is_published_where_one_can_not_be_encoded(mocked: Mock) -> None:
    """A message that is not valid raises before the first request is sent."""
    side, broker = mocked
    with pytest.raises(InvalidMessage, match="is not JSON serializable.: give bytes"):
        side.producer().publish_many([*map(str, range(150)), object()])
    for payload in ("text", b"bytes", {"a": "mapping"}):
        with pytest.raises(InvalidMessage, match="is one payload: put it in a list"):
            side.producer().publish_many(payload)
    with pytest.raises(InvalidMessage, match="headers must be a mapping, not NoneType"):
        side.producer().publish_many([Draft(payload="x", headers=None)])  # type: ignore[arg-type]
    assert broker.requests == []


@pytest.mark.parametrize("body", [{"status": "fine"}, {"Result": "fine", "Results": "fine"}])
def test_an_answer_of_no_broker_is_a_clear_error(mocked: Mock, body: dict[str, str]) -> None:
    """JSON of another service, which has not the fields of a broker, raises NotFound."""
    side, broker = mocked
    broker.publish(1)
    message = side.consumer().next()
    broker.failing = lambda request: httpx.Response(200, json=body)
    for ask in (
        lambda: side.consumer().fetch(1),
        message.ack,
        message.in_progress,
        lambda: side.producer().publish("x"),
    ):
        with pytest.raises(NotFound, match="is not that of a broker: check the URL"):
            ask()


ZEROS = b"0" * 400
"""End of a number that is too large for a float."""


@pytest.mark.parametrize(
    "content",
    [
        b'{"Result": [{}], "Results": []}',
        b'{"Result": [{"ID": "x"}], "Results": [{"Status": "ok"}, {"Status": "ok"}]}',
        b"[" * 100_000,
        b'{"Result": [{"ID": "x", "LeaseToken": "x", "Message": 1, "LeaseSeconds": 1%s}]}' % ZEROS,
    ],
)
def test_an_answer_without_what_was_asked_for_is_a_clear_error(
    mocked: Mock, content: bytes
) -> None:
    """A 200 that lacks what was asked for, or can't be parsed, raises NotFound."""
    side, broker = mocked
    broker.publish(1)
    message = side.consumer().next()
    broker.failing = lambda request: httpx.Response(200, content=content)
    for ask in (lambda: side.consumer().fetch(1), message.ack, message.in_progress):
        with pytest.raises(NotFound, match="is not that of a broker: check the URL"):
            ask()
    broker.failing = lambda request: httpx.Response(418, content=b"[" * 100_000)
    with pytest.raises(BadRequest, match=r"\[\["):
        side.consumer().fetch(1)


@pytest.mark.parametrize("published", [50, 100])
def test_an_error_has_the_receipts_so_far(mocked: Mock, published: int) -> None:
    """The error of a publish has the receipts of all messages that were published before it."""
    side, broker = mocked
    broker.limits = {"MaxBatch": 50}
    refusal = httpx.Response(403, json={"detail": "no more"})
    broker.failing = lambda request: refusal if len(broker.jobs) == published else None
    with pytest.raises(NotAllowed, match="no more") as refused:
        side.producer().publish_many([str(number) for number in range(110)])
    ids = [receipt.message_id for receipt in refused.value.receipts]
    assert ids == [job.message["MessageID"] for job in broker.jobs]
    assert len(ids) == published


def test_each_request_of_a_long_publish_is_repeated(
    mocked: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    side, broker = mocked
    late: list[float] = []
    monkeypatch.setattr(flows, "now", lambda: time.monotonic() + sum(late))

    def reset(request: Request) -> httpx.Response | None:
        if len(broker.requests) == 1:
            late.append(2 * PATIENCE)
        if len(broker.requests) == 2:
            raise httpx.ReadError("reset")
        return None

    broker.failing = reset
    receipts = side.producer().publish_many([str(number) for number in range(200)])
    assert {receipt.status for receipt in receipts} == {"accepted"}
    assert len(broker.requests) == 3


def too_often(broker: FakeBroker) -> None:
    """Make the broker refuse the next request with status 429, without any effect."""
    known = len(broker.requests)

    def refuse(request: Request) -> httpx.Response | None:
        is_next = len(broker.requests) == known + 1
        return httpx.Response(429, json={"detail": "too many"}) if is_next else None

    broker.failing = refuse


def test_a_publish_that_came_too_often_may_be_a_duplicate(mocked: Mock) -> None:
    """A publish that is repeated after status 429 reports a duplicate if its id was used before."""
    side, broker = mocked
    producer = side.producer()
    producer.publish("first", message_id="m-1")
    too_often(broker)
    assert producer.publish("second", message_id="m-1").duplicate


@pytest.mark.parametrize("verb", ["nack", "release"])
def test_an_outcome_that_was_refused_as_too_early_may_be_too_late(mocked: Mock, verb: str) -> None:
    """If an outcome is repeated after status 429, and the lease has ended, it raises LeaseLost."""
    side, broker = mocked
    broker.publish(1)
    message = side.consumer().next()
    side.world.expire()
    too_often(broker)
    with pytest.raises(LeaseLost):
        getattr(message, verb)()


@pytest.mark.parametrize("verb", ["ack", "reject", "nack", "release"])
def test_an_outcome_whose_answer_was_lost_is_sent_again(mocked: Mock, verb: str) -> None:
    """The repeat counts as done, even where the broker answers that the lease is lost."""
    side, broker = mocked
    broker.publish(1)
    message = side.consumer().next()
    losing(broker, "ack")
    getattr(message, verb)(*(["no good"] if verb == "reject" else []))
    expected = {"ack": "DELIVERED", "reject": "DEAD"}.get(verb, "QUEUED")
    assert broker.states() == [expected]
    assert broker.jobs[0].retry_count == (verb == "nack")


def test_an_outcome_that_was_refused_can_be_sent_again(mocked: Mock) -> None:
    """An outcome that was refused, for example by a proxy, can be sent again later."""
    side, broker = mocked
    broker.publish(1)
    message = side.consumer().next()
    broker.failing = lambda request: httpx.Response(400, json={"detail": "not now"})
    with pytest.raises(BadRequest, match="not now"):
        message.ack()
    broker.failing = lambda request: None
    message.ack()
    assert broker.states() == ["DELIVERED"]


def test_a_broker_that_stays_away_is_reported_in_time(mocked: Mock) -> None:
    side, broker = mocked

    def refuse(request: Request) -> httpx.Response | None:
        raise httpx.ConnectError("All connection attempts failed")

    broker.failing = refuse
    start = time.monotonic()
    with pytest.raises(Unreachable, match="All connection attempts failed"):
        side.consumer().fetch(1, timeout=2)
    assert time.monotonic() - start < PATIENCE_SECONDS
    assert len(broker.requests) >= 2


def test_requests_name_their_client_and_large_ones_are_compressed(mocked: Mock) -> None:
    side, broker = mocked
    side.producer().publish_many(["x" * 30_000])
    side.producer().publish("small")
    large, small = broker.asked("broadcast-batch")
    assert large.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in small.headers
    assert small.headers["User-Agent"].startswith("pulljobs/")
    assert small.headers["Accept-Encoding"] == "gzip"
    assert small.headers["X-Worker-Host"] == socket.gethostname()
    assert len(small.headers["X-Worker-Id"]) == 32


@pytest.mark.parametrize("status", [500, 503])
def test_a_broker_that_fails_is_asked_less_and_less_and_at_full_rate_again(status: int) -> None:
    broker = filled(20)
    fails = True

    def fail(request: Request) -> httpx.Response | None:
        away = {"detail": "The database is away."}
        return httpx.Response(status, json=away, headers={"Retry-After": "0.2"}) if fails else None

    broker.failing = fail
    again = full_jitter(exponential(0.1, 1.0), least=0.05)
    consumer, _ = consumer_of([broker], nothing, max_in_flight=5, reconnect=again)
    with running(consumer):
        wait_until(lambda: len(broker.requests) >= 5)
        fails = False
        wait_until(lambda: is_done(broker))
    waits = list(gaps([request.at for request in broker.requests]))[:4]
    assert min(waits) >= 0.2


@pytest.mark.parametrize(
    ("given", "seconds"), [("86400", 300.0), ("inf", 300.0), ("nan", 0.0), ("-5", 0.0), ("7", 7.0)]
)
def test_no_broker_sends_its_clients_away_for_long(given: str, seconds: float) -> None:
    """A `Retry-After` counts as 300 s at most, and as 0 if it is not a number from 0 on."""
    with pytest.raises(Unreachable) as refused:
        checked(Answer(503, {"retry-after": given}, b"maintenance", 0.0, 0.0))
    assert refused.value.retry_after == seconds


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("Sat, 28 Nov 2026 12:00:30 GMT", 30.0),
        ("Sat, 28 Nov 2026 11:00:00 GMT", 0.0),
        ("Sat, 28 Nov 2037 12:00:00 GMT", 300.0),
        ("Sat, 99 Nov 99999 12:00:00 GMT", 0.0),
        ("soon", 0.0),
    ],
)
def test_a_retry_after_may_be_a_date(given: str, seconds: float) -> None:
    headers = {"retry-after": given, "date": "Sat, 28 Nov 2026 12:00:00 GMT"}
    with pytest.raises(Unreachable) as refused:
        checked(Answer(503, headers, b"maintenance", 0.0, 0.0))
    assert refused.value.retry_after == seconds


def test_refused_connections_give_few_attempts_and_then_recovery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In OUTAGE seconds there are at most 15 attempts. Messages come in as many seconds more."""
    place = socket.socket()  # no other process gets the port, and connections are refused
    place.bind(("127.0.0.1", 0))
    port = place.getsockname()[1]
    scale = OUTAGE / 60
    attempts: list[float] = []
    consumer = Consumer(
        nothing,
        f"http://127.0.0.1:{port}",
        subscription=SUBSCRIPTION,
        reconnect=lambda n: noted(attempts, RECONNECT(n) * scale),
    )
    with closing(place), running(consumer):
        time.sleep(OUTAGE)
        tried = len(attempts)
        wait_until(lambda: len(attempts) >= 2)
        start = time.monotonic()
        broker = filled(3)
        with served_at(broker, place):
            wait_until(lambda: is_done(broker), 60 * scale + 2 * PATIENCE_SECONDS)
            recovered = time.monotonic() - start
    print(f"{OUTAGE:g} s refused: {tried} attempts, recovered after {recovered:.1f} s")
    assert tried <= 15
    assert recovered <= 60 * scale + PATIENCE_SECONDS


def noted(attempts: list[float], wait: float) -> float:
    attempts.append(wait)
    return wait


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_an_answer_lost_after_the_commit_costs_nothing(live: Live) -> None:
    """A repeated pull gets the same jobs and lease, uncharged, and a repeated ack succeeds."""
    side = Side(live, is_async=False)
    side.producer().publish_many([str(n) for n in range(5)])
    side.close()
    with (
        proxy_before(live.base_url) as proxy,
        PullConsumer(proxy.url, SUBSCRIPTION, connection=Connection()) as consumer,
    ):
        consumer.limits()
        proxy.lose_answer_to(b"/pull")
        messages = consumer.fetch(3)
        assert proxy.cut == 1
        rows = dict(Job.objects.filter(state="INFLIGHT").values_list("id", "deliveries"))
        assert (len(rows), set(rows.values())) == (3, {1})
        tokens = {message.job.lease_token for message in messages}
        assert tokens == {str(lease.lease_token) for lease in Lease.objects.all()}
        proxy.lose_answer_to(b"/ack")
        for message in messages:
            message.ack()
        assert proxy.cut == 2
    assert ArchivedJob.objects.filter(state="DELIVERED").count() == 3


def unwilling() -> FakeBroker:
    """Return a broker that answers each pull at once, without jobs."""
    empty = {"Result": [], "Status": {"Reason": "no_messages"}}
    return FakeBroker(
        failing=lambda request: (
            httpx.Response(200, json=empty) if request.path.endswith("/pull") else None
        )
    )


def test_a_fetch_does_not_flood_a_server_that_lets_no_pull_wait() -> None:
    broker = unwilling()
    connection = Connection(transport=httpx.MockTransport(broker.answer))
    with PullConsumer("http://b0", SUBSCRIPTION, connection=connection) as consumer:
        assert consumer.fetch(1, timeout=1.0) == []
    assert len(broker.asked("pull")) <= 25


def test_a_consumer_does_not_flood_a_server_that_lets_no_pull_wait() -> None:
    broker = unwilling()
    consumer, _ = consumer_of([broker], nothing)
    with running(consumer):
        wait_until(lambda: len(broker.asked("pull")) >= 3)
    asked = [request.at for request in broker.asked("pull")[:3]]
    assert min(gaps(asked)) >= EARLY_PAUSE * 0.9
