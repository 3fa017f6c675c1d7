"""Leases that the client holds: when it renews them, gives jobs back, and counts them as lost."""

import asyncio
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import pytest

from example_project.state import BASE_DIR
from pulljobs.client import (
    AsyncPullConsumer,
    Connection,
    Consumer,
    LeaseLost,
    Message,
    PullConsumer,
)
from tests.client.broker import FakeBroker, Request
from tests.client.names import ENVIRONMENT, SUBSCRIPTION
from tests.client.serving import served_at
from tests.client.test_flow import OFF, consumer_of, filled, is_done, nothing, running
from tests.sessions import PATIENCE_SECONDS, Thread, wait_until

LEASE = 2.0
"""Seconds of the leases of these tests."""
JOBS = 5


def brief(count: int, lease: float = LEASE) -> FakeBroker:
    """Return a broker with so many messages, which gives leases of `lease` seconds."""
    broker = filled(count)
    broker.limits = {"LeaseSeconds": lease}
    return broker


def away(request: Request) -> httpx.Response:
    return httpx.Response(503, json={"detail": "away"})


def sleeping(kind: str, seconds: float) -> Callable[[Any], Any]:
    async def sleep(message: Any) -> None:
        await asyncio.sleep(seconds)

    return sleep if kind == "async" else lambda message: time.sleep(seconds)


def charges(*brokers: FakeBroker) -> list[tuple[str, int, int]]:
    """Return the distinct triples of state, deliveries and retries that the jobs have."""
    jobs = [job for broker in brokers for job in broker.jobs]
    return sorted({(job.state, job.deliveries, job.retry_count) for job in jobs})


@pytest.mark.parametrize("auto_renew", [False, True])
@pytest.mark.parametrize("brokers", [1, 2])
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_message_that_waits_for_its_handler_keeps_nearly_its_full_lease(
    kind: str, brokers: int, auto_renew: bool
) -> None:
    """Each handler takes most of a lease, and no message loses its lease while it waits."""
    given = [brief(JOBS // brokers) for _ in range(brokers)]
    handler = sleeping(kind, 0.7 * LEASE)
    consumer, _ = consumer_of(given, handler, max_in_flight=20, auto_renew=auto_renew)
    with running(consumer):
        wait_until(lambda: is_done(*given))
    assert charges(*given) == [("DELIVERED", 1, 0)]
    assert consumer.counts["lost"] == 0


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_message_near_the_hard_end_of_its_lease_goes_back_uncharged(kind: str) -> None:
    """A message that can no longer be renewed is released, and claimed again under a new lease."""
    broker = brief(JOBS)
    broker.longest_lease = 1.5 * LEASE
    consumer, _ = consumer_of([broker], sleeping(kind, 0.7 * LEASE), max_in_flight=20)
    with running(consumer):
        wait_until(lambda: is_done(broker))
    assert charges(broker) == [("DELIVERED", 1, 0)]
    assert consumer.counts["release"] > 0


class Withholding:
    """Transport to a broker that withholds the answer to one pull: the `number`-th, from 1 on."""

    def __init__(self, broker: FakeBroker, number: int) -> None:
        self._broker, self._left = broker, number
        self.withheld = threading.Event()

    def answer(self, request: httpx.Request) -> httpx.Response:
        response = self._broker.answer(request)
        if self._is_withheld(request):
            raise KeyboardInterrupt
        return response

    async def answer_async(self, request: httpx.Request) -> httpx.Response:
        response = await self._broker.answer_async(request)
        if self._is_withheld(request):
            await asyncio.sleep(PATIENCE_SECONDS)
        return response

    def _is_withheld(self, request: httpx.Request) -> bool:
        self._left -= request.url.path.endswith("/pull")
        if self._left or self.withheld.is_set():
            return False
        self.withheld.set()
        return True


@pytest.mark.parametrize("pull", [1, 2])
def test_a_cancelled_fetch_gives_its_jobs_back_uncharged(pull: int) -> None:
    """A cancelled fetch gives back the jobs of a withheld answer and those of an earlier pull."""
    broker = brief(4)
    broker.limits |= {"MaxBatch": 2}
    withholding = Withholding(broker, pull)

    async def fetch() -> None:
        connection = Connection(transport=httpx.MockTransport(withholding.answer_async))
        async with AsyncPullConsumer("http://b0", SUBSCRIPTION, connection=connection) as consumer:
            fetching = asyncio.create_task(consumer.fetch(4, PATIENCE_SECONDS))
            while not withholding.withheld.is_set():
                await asyncio.sleep(0.005)
            fetching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await fetching

    asyncio.run(fetch())
    assert charges(broker) == [("QUEUED", 0, 0)]


@pytest.mark.parametrize("pull", [1, 2])
def test_an_interrupted_fetch_gives_its_jobs_back_uncharged(pull: int) -> None:
    broker = brief(4)
    broker.limits |= {"MaxBatch": 2}
    connection = Connection(transport=httpx.MockTransport(Withholding(broker, pull).answer))
    with PullConsumer("http://b0", SUBSCRIPTION, connection=connection) as consumer:
        with pytest.raises(KeyboardInterrupt):
            consumer.fetch(4, PATIENCE_SECONDS)
        assert charges(broker) == [("QUEUED", 0, 0)]


def test_fast_handlers_cost_no_renewal() -> None:
    broker = filled(300)
    consumer, _ = consumer_of([broker], nothing, max_in_flight=50)
    with running(consumer):
        wait_until(lambda: is_done(broker))
    assert broker.asked("renew") == []


def test_handlers_of_a_tenth_of_a_lease_share_renewals() -> None:
    """A run of 20 messages needs 15 renewals at most: each covers the messages that wait behind."""
    broker = brief(20, lease=4.0)
    consumer, _ = consumer_of([broker], sleeping("plain", 0.2), max_in_flight=20)
    with running(consumer):
        wait_until(lambda: is_done(broker))
    assert 1 <= len(broker.asked("renew")) <= 15


def test_what_waits_while_the_broker_is_away_is_released_before_the_end_of_its_lease() -> None:
    """No waiting message is begun, and the releases reach the broker when it is back."""
    broker = brief(4)
    begun: list[str] = []
    gate = threading.Event()

    def handle(message: Message) -> None:
        begun.append(message.id)
        if len(begun) == 1:
            wait_until(lambda: broker.in_flight == 4)
            broker.failing = away
            gate.wait(PATIENCE_SECONDS)

    consumer, _ = consumer_of(
        [broker], handle, max_in_flight=4, reconnect=lambda failures: 0.1, backoff=OFF
    )
    with running(consumer):
        wait_until(lambda: broker.in_flight == 4)
        ends = max(job.leased_until for job in broker.jobs)
        wait_until(lambda: time.monotonic() > ends)
        broker.paused = True
        broker.failing = lambda request: None
        wait_until(lambda: broker.states().count("QUEUED") == 3)
        gate.set()
        wait_until(lambda: consumer.held == 0)
        assert len(begun) == 1
    assert [job.deliveries for job in broker.jobs if job.state == "QUEUED"] == [0, 0, 0]


@pytest.mark.parametrize("is_away", [False, True])
def test_an_async_handler_is_cancelled_at_the_end_of_its_lease(is_away: bool) -> None:
    """Without `auto_renew`, the client then sends no outcome, so the broker will charge the job."""
    broker = brief(1)
    ended: list[float] = []

    async def handle(message: Any) -> None:
        broker.failing = away if is_away else broker.failing
        broker.paused = True
        try:
            await asyncio.sleep(PATIENCE_SECONDS)
        finally:
            assert message.lost
            ended.append(time.monotonic())

    consumer, _ = consumer_of([broker], handle, reconnect=lambda failures: 0.1)
    with running(consumer):
        wait_until(lambda: bool(ended))
        broker.failing = lambda request: None
        wait_until(lambda: consumer.held == 0)
    assert broker.jobs[0].leased_until - 0.5 < ended[0]
    assert broker.asked("ack") == []
    assert charges(broker) == [("INFLIGHT", 1, 0)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_run_that_an_outage_cuts_off_goes_back_uncharged(kind: str) -> None:
    """With `auto_renew`, a job whose lease ends while the broker is away is released uncharged."""
    broker = brief(1, lease=2 * LEASE)
    begun, ended = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        begun.set()
        wait_until(lambda: message.lost)
        ended.set()
        raise LeaseLost(message.id)

    async def handle_async(message: Any) -> None:
        begun.set()
        try:
            await asyncio.sleep(PATIENCE_SECONDS)
        finally:
            ended.set()

    consumer, _ = consumer_of(
        [broker],
        handle_async if kind == "async" else handle,
        auto_renew=True,
        reconnect=lambda failures: 0.1,
    )
    with running(consumer):
        assert begun.wait(PATIENCE_SECONDS)
        broker.failing, broker.paused = away, True
        assert ended.wait(PATIENCE_SECONDS)
        broker.failing = lambda request: None
        wait_until(lambda: consumer.held == 0)
    assert charges(broker) == [("QUEUED", 0, 0)]


def test_a_handler_that_holds_up_the_renewals_is_charged_even_in_an_outage() -> None:
    """The job of a handler that blocks renewals is not released, even if the broker was away."""
    broker = brief(1)
    ended = threading.Event()

    async def handle(message: Any) -> None:
        broker.failing, broker.paused = away, True
        while not broker.asked("renew"):
            await asyncio.sleep(0.01)
        end = message.deadline + LEASE
        wait_until(lambda: time.monotonic() > end)  # This blocks the event loop.
        try:
            await asyncio.sleep(PATIENCE_SECONDS)
        finally:
            ended.set()

    consumer, _ = consumer_of([broker], handle, auto_renew=True, reconnect=lambda failures: 0.1)
    with running(consumer):
        assert ended.wait(PATIENCE_SECONDS)
        broker.failing = lambda request: None
        wait_until(lambda: consumer.held == 0)
    assert charges(broker) == [("INFLIGHT", 1, 0)]


def test_an_async_handler_stops_when_a_renewal_shows_that_the_lease_is_lost() -> None:
    broker = brief(1)
    cancelled: list[str] = []

    async def handle(message: Any) -> None:
        broker.paused, broker.jobs[0].lease_token = True, "of another"
        try:
            await asyncio.sleep(PATIENCE_SECONDS)
        except asyncio.CancelledError:
            cancelled.append(message.id)
            raise

    consumer, _ = consumer_of([broker], handle, auto_renew=True)
    with running(consumer):
        wait_until(lambda: bool(cancelled))
        wait_until(lambda: consumer.held == 0)
    assert broker.asked("ack") == []


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_result_after_the_end_of_the_lease_is_still_offered(kind: str) -> None:
    """The client sends a late result. The broker accepts it if no other client claimed the job."""
    broker = brief(1)
    was_lost: list[bool] = []

    def handle(message: Any) -> None:
        broker.paused = True
        wait_until(lambda: message.lost)
        was_lost.append(message.lost)

    async def handle_async(message: Any) -> None:
        broker.paused = True
        try:
            await asyncio.sleep(PATIENCE_SECONDS)
        except asyncio.CancelledError:
            was_lost.append(message.lost)

    consumer, _ = consumer_of([broker], handle_async if kind == "async" else handle)
    with running(consumer):
        wait_until(lambda: is_done(broker))
    assert was_lost == [True]


def test_a_plain_handler_that_stops_for_a_lost_lease_is_charged() -> None:
    """A plain handler that stops for its lost lease sends no outcome, so the broker charges it."""
    broker = brief(1)

    def handle(message: Message) -> None:
        broker.paused = True
        wait_until(lambda: message.lost)
        raise LeaseLost(message.id)

    consumer, _ = consumer_of([broker], handle)
    with running(consumer):
        wait_until(lambda: consumer.counts["lost"] == 1)
    assert broker.asked("ack") == []


def test_a_renewal_counts_from_its_request_and_not_from_a_late_answer() -> None:
    """The client never treats a lease as longer than the broker does, however late an answer is."""
    broker = brief(1)

    def late(request: httpx.Request) -> httpx.Response:
        response = broker.answer(request)
        if request.url.path.endswith("/renew"):
            end = time.monotonic() + LEASE / 2
            wait_until(lambda: time.monotonic() > end)
        return response

    connection = Connection(transport=httpx.MockTransport(late))
    with PullConsumer("http://b0", SUBSCRIPTION, connection=connection) as consumer:
        message = consumer.next()
        assert message is not None
        assert message.in_progress() < LEASE / 2
        assert message.remaining < LEASE / 2
        wait_until(lambda: message.lost)
        assert time.monotonic() < broker.jobs[0].leased_until + LEASE / 2


def test_the_next_renewal_reports_the_newest_progress_once() -> None:
    broker = filled(1)
    connection = Connection(transport=httpx.MockTransport(broker.answer))
    with PullConsumer("http://b0", SUBSCRIPTION, connection=connection) as consumer:
        message = consumer.next()
        assert message is not None
        for wrong in (-1, None, "half"):
            with pytest.raises(ValueError, match=f"done must be .* from 0 on, not {wrong!r}"):
                message.progress(wrong)  # type: ignore[arg-type]
        message.progress(1)
        message.progress(Fraction(2), 10, "pages")  # type: ignore[arg-type]
        message.in_progress()
        message.in_progress()
    reports = [request.body["Leases"][0].get("Progress") for request in broker.asked("renew")]
    assert reports == [{"Done": 2, "Total": 10, "Note": "pages"}, None]


def test_an_ack_may_have_a_result() -> None:
    """A result that is not JSON settles nothing. A later change of the value is not sent."""
    broker, result = filled(2), {"pages": [1]}

    def count_pages(message: Message) -> None:
        for wrong in (object(), math.nan):
            with pytest.raises((TypeError, ValueError)):
                message.ack(wrong)
        message.ack(result)
        result["pages"].append(2)
        if len(result["pages"]) == 3:
            consumer.stop()

    connection = Connection(transport=httpx.MockTransport(broker.answer_async))
    consumer = Consumer(
        count_pages, "http://b0", subscription=SUBSCRIPTION, connection=connection, max_in_flight=2
    )
    consumer.run()
    sent = [item for request in broker.asked("ack") for item in request.body["Results"]]
    assert [item["Result"] for item in sent] == [{"pages": [1]}, {"pages": [1, 2]}]
    assert {item["Outcome"] for item in sent} == {"DELIVERED"}


def test_a_plain_handler_that_outlasts_the_graceful_time_gives_its_job_back_uncharged() -> None:
    broker = filled(2)
    gate, ended = threading.Event(), threading.Event()
    kept: list[Message] = []

    def handle(message: Message) -> None:
        kept.append(message)
        consumer.stop()
        gate.wait(PATIENCE_SECONDS)
        with pytest.raises(LeaseLost):
            message.in_progress()
        message.ack()
        ended.set()

    consumer, _ = consumer_of([broker], handle, max_in_flight=2, graceful_timeout=0.05)
    Thread(consumer.run).result()
    assert charges(broker) == [("QUEUED", 0, 0)]
    assert kept[0].lost
    gate.set()
    assert ended.wait(PATIENCE_SECONDS)
    assert charges(broker) == [("QUEUED", 0, 0)]


def test_an_async_handler_that_resists_its_end_gives_its_job_back_uncharged() -> None:
    broker = filled(1)
    gate, began = threading.Event(), threading.Event()

    async def handle(message: Any) -> None:
        began.set()
        consumer.stop()
        while not gate.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue

    consumer, _ = consumer_of([broker], handle, graceful_timeout=0.05)
    thread = Thread(consumer.run)
    try:
        assert began.wait(PATIENCE_SECONDS)
        wait_until(lambda: charges(broker) == [("QUEUED", 0, 0)])
    finally:
        gate.set()
        thread.result()


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, **ENVIRONMENT}
    process = subprocess.Popen([sys.executable, "-m", *command], cwd=BASE_DIR, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def thaw_past_the_lease(broker: FakeBroker, process: subprocess.Popen[bytes]) -> float:
    """Continue a stopped process after its leases have ended. Return the monotonic time of that."""
    broker.paused = True
    # The broker may still read a renewal that the process sent before it was stopped.
    wait_until(lambda: time.monotonic() > max(job.leased_until for job in broker.jobs) + 0.2)
    thawed = time.monotonic()
    process.send_signal(signal.SIGCONT)
    return thawed


def is_stopped(process: subprocess.Popen[bytes]) -> bool:
    return ") T " in Path(f"/proc/{process.pid}/stat").read_text()


def times(effects: Path, effect: str) -> list[float]:
    rows = [line.split() for line in effects.read_text().splitlines()]
    return [float(row[1]) for row in rows if len(row) == 2 and row[0] == effect]


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_frozen_client_does_nothing_after_it_continues(kind: str, tmp_path: Path) -> None:
    """After a frozen client's lease ended, its handler has no effect and no message begins."""
    broker, effects = brief(3, lease=3.0), tmp_path / "effects"
    effects.touch()
    with (
        served_at(broker) as url,
        started("tests.client.frozen", url, kind, str(effects)) as process,
    ):
        wait_until(lambda: broker.in_flight == 3 and bool(times(effects, "effect")))
        effects.with_suffix(".stop").touch()
        wait_until(lambda: is_stopped(process))
        thawed = thaw_past_the_lease(broker, process)
        wait_until(lambda: bool(times(effects, "stopped")))
        wait_until(lambda: broker.states().count("QUEUED") >= 2)
    assert max(times(effects, "effect")) < thawed
    assert len(times(effects, "begun")) == 1


@pytest.mark.processes
@pytest.mark.parametrize("auto_renew", [False, True])
@pytest.mark.parametrize("cause", ["away", "frozen"])
def test_a_command_and_its_children_end_with_the_lease(
    cause: str, auto_renew: bool, tmp_path: Path
) -> None:
    broker, pid = brief(1, lease=3.0), tmp_path / "pid"
    command = f"sleep 300 & echo $! > {pid}; wait"
    with served_at(broker) as url:
        consumer = f"{url}/channel/orders/consumer/census"
        options = ["--auto-renew"] if auto_renew else []
        client = ("pulljobs.client", "consume", consumer, "--exec", command, *options)
        with started(*client) as process:
            wait_until(lambda: pid.exists() and pid.read_text().endswith("\n"))
            child = Path(f"/proc/{pid.read_text().strip()}")
            assert child.exists()
            if cause == "frozen":
                process.send_signal(signal.SIGSTOP)
                thaw_past_the_lease(broker, process)
            else:
                broker.failing = away
            wait_until(lambda: not is_running(child))
            assert process.poll() is None
    assert broker.asked("ack") == []


def is_running(process: Path) -> bool:
    """Return True if a process exists and is not a zombie."""
    try:
        return ") Z " not in (process / "stat").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_an_outcome_whose_row_is_locked_delays_no_other_and_keeps_its_lease(kind: str) -> None:
    """The client sends the outcome again, and renews the lease, until the row is free."""
    broker = brief(10)
    [locked, *others] = broker.jobs
    broker.locked_jobs = {locked.id}
    consumer, _ = consumer_of([broker], sleeping(kind, 0.01), max_in_flight=3, auto_renew=True)
    with running(consumer):
        wait_until(lambda: {job.state for job in others} == {"DELIVERED"})
        ends_at = time.monotonic() + 1.5 * LEASE
        wait_until(lambda: time.monotonic() > ends_at)
        broker.publish(1, start=10)
        wait_until(lambda: broker.jobs[-1].state == "DELIVERED")
        assert (locked.state, locked.leased_until > time.monotonic()) == ("INFLIGHT", True)
        broker.locked_jobs.clear()
        wait_until(lambda: is_done(broker))
    assert charges(broker) == [("DELIVERED", 1, 0)]
    assert (consumer.counts["delivered"], consumer.counts["lost"]) == (11, 0)
    of_locked = [request for request in broker.asked("ack") if locked.id in ids_of(request)]
    assert len(of_locked) > 2
    assert all(ids_of(request) == {locked.id} for request in of_locked[1:])


def ids_of(request: Request) -> set[str]:
    return {result["ID"] for result in request.body["Results"]}


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_lease_that_another_transaction_has_locked_ends_no_other_handler(kind: str) -> None:
    """The handler of the locked lease ends with the lease, and not at the first failed renewal."""
    broker = brief(2)
    [locked, other] = broker.jobs
    broker.locked_leases = {locked.id}
    cut_off = []

    def note(message: Message) -> None:
        cut_off.append((message.id, time.monotonic() > locked.leased_until - LEASE / 4))

    def run_long(message: Message) -> None:
        until = time.monotonic() + 2 * LEASE
        while time.monotonic() < until and not message.lost:
            time.sleep(0.01)
        if message.lost:
            note(message)

    async def await_long(message: Any) -> None:
        try:
            await asyncio.sleep(2 * LEASE)
        except asyncio.CancelledError:
            note(message)
            raise

    handler = run_long if kind == "plain" else await_long
    consumer, _ = consumer_of([broker], handler, max_in_flight=2, concurrency=2, auto_renew=True)
    with running(consumer):
        wait_until(lambda: bool(cut_off))
        broker.locked_leases.clear()
        wait_until(lambda: is_done(broker))
    assert (other.deliveries, other.retry_count) == (1, 0)
    assert cut_off == [(locked.id, True)]
