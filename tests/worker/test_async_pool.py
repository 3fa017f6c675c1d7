"""Async handlers on the event loop: their number, their contexts, and how they are ended."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from contextvars import ContextVar
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction

from pulljobs.engine import deadlines, outcomes
from pulljobs.errors import ConfigurationError, LeaseLost, Retry
from pulljobs.handlers import AckPolicy, ClaimedJob, Handler, handler
from pulljobs.models import Channel
from pulljobs.states import Event
from pulljobs.worker import async_pool, event_loop, thread_connections
from pulljobs.worker.async_pool import AsyncPool, HandlerContext
from pulljobs.worker.event_loop import EventLoop
from pulljobs.worker.result_buffer import ResultBuffer
from pulljobs.worker.runs import CancelReason
from pulljobs.worker.shared_state import IDLE
from tests.factories import USING
from tests.handling import registry_of_its_own
from tests.sessions import PATIENCE_SECONDS, wait_until
from tests.sessions import query as rows_of
from tests.silent import behind, silent_proxy
from tests.worker.claiming import unclaimed

Function = Callable[[ClaimedJob], Awaitable[Any]]
MARK: ContextVar[str] = ContextVar("MARK", default="none")


class AsyncBench:
    """Async pool with its event loop, and the outcomes that it reports."""

    def __init__(self, concurrency: int = 4) -> None:
        self.loop, self.buffer = EventLoop(), ResultBuffer()
        self.patience: float = PATIENCE_SECONDS
        self.slots = [IDLE] * (concurrency + 2)
        self.pool = AsyncPool(
            concurrency, self.slots, 2, self.loop, self.buffer, on_low=lambda: None
        )
        self.loop.start()

    def take(self, *functions: Function, **options: Any) -> list[ClaimedJob]:
        jobs = [unclaimed(number) for number in range(1, len(functions) + 1)]
        for job, function in zip(jobs, functions, strict=True):
            job.handler = Handler(channel="c", consumer="c", function=function, **options)
        self.pool.take(jobs)
        return jobs

    def decided(self, count: int = 1) -> list[outcomes.Settlement | None]:
        wait_until(lambda: self._has_outcomes(count))
        return [outcome for _job, outcome in self.buffer.results]

    def decided_while_blocked(
        self, blocker: "Blocker", count: int = 1
    ) -> list[outcomes.Settlement | None]:
        """Return `count` outcomes, which are reported once `blocker` blocks the loop."""
        assert blocker.blocked.wait(PATIENCE_SECONDS)
        self.patience = 1.2
        decided = self.decided(count)
        self.patience = PATIENCE_SECONDS
        return decided

    def _has_outcomes(self, count: int) -> bool:
        """Check the loop as the watchdog does. Return True if there are that many outcomes."""
        self.loop.check(self.patience)
        return len(self.buffer.results) >= count

    def events(self, count: int = 1) -> list[Event | None]:
        return [outcome.event if outcome else None for outcome in self.decided(count)]


@pytest.fixture
def bench() -> Iterator[AsyncBench]:
    bench = AsyncBench()
    yield bench
    bench.pool.cancel_all(CancelReason.STOPPED)
    bench.pool.join(time.monotonic() + 5)
    bench.loop.stop()


class Gate:
    """Handler that runs until the test opens the gate."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.running = self.most = self.cancelled = 0

    async def __call__(self, job: ClaimedJob) -> int:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            while not self.opened.is_set():
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        return job.id


def test_as_many_handlers_run_as_there_are_slots_and_the_rest_waits(bench: AsyncBench) -> None:
    gate = Gate()
    bench.take(*[gate] * 10)
    wait_until(lambda: gate.running == 4)
    assert bench.slots == [IDLE, IDLE, 1, 2, 3, 4]
    gate.opened.set()
    decided = bench.decided(10)
    assert gate.most == 4
    assert {outcome and outcome.result for outcome in decided} == {
        str(number) for number in range(1, 11)
    }
    wait_until(lambda: bench.pool.done == 10)
    assert bench.slots == [IDLE] * 6


def test_a_callable_object_is_async_by_its_call() -> None:
    assert Handler(channel="c", consumer="c", function=Gate()).is_async
    assert not Handler(channel="c", consumer="c", function=lambda job: None).is_async


def test_context_variables_of_a_handler_are_its_own(bench: AsyncBench) -> None:
    seen: list[str] = []

    async def set_and_check(job: ClaimedJob) -> None:
        seen.append(MARK.get())
        MARK.set(f"job {job.id}")
        await asyncio.sleep(0)
        assert MARK.get() == f"job {job.id}"

    bench.take(*[set_and_check] * 12)
    bench.decided(12)
    assert seen == ["none"] * 12


def test_synchronous_calls_share_a_thread_within_a_handler_only(
    bench: AsyncBench,
) -> None:
    """Synchronous calls of one handler share a thread. Handlers that run together share none."""
    meeting = threading.Barrier(3, timeout=PATIENCE_SECONDS)
    threads: list[tuple[int, int]] = []

    async def call(job: ClaimedJob) -> None:
        first = await sync_to_async(threading.get_ident)()
        await sync_to_async(meeting.wait)()
        threads.append((first, await sync_to_async(threading.get_ident)()))

    bench.take(*[call] * 3)
    assert bench.events(3) == [Event.DELIVER] * 3
    assert len({first for first, _second in threads}) == 3
    assert all(first == second for first, second in threads)


def test_handlers_one_after_the_other_share_a_thread(bench: AsyncBench) -> None:
    """Handlers that run one after the other share a thread, and so its database connections."""
    threads: set[int] = set()

    async def call(job: ClaimedJob) -> None:
        threads.add(await sync_to_async(threading.get_ident)())

    for count in range(1, 8):
        bench.take(call)
        bench.decided(count)
    assert len(threads) == 1


@pytest.mark.parametrize("limit", [None, 0.01])
def test_the_next_handler_does_not_get_a_blocked_thread(
    bench: AsyncBench, limit: float | None
) -> None:
    """A thread that a cancelled or timed-out handler still blocks is given to no other handler."""
    blocked, may_end = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def block() -> None:
        threads.append(threading.current_thread())
        blocked.set()
        may_end.wait(PATIENCE_SECONDS)

    async def leave_blocked(job: ClaimedJob) -> None:
        await asyncio.wait_for(sync_to_async(block)(), limit)

    async def call(job: ClaimedJob) -> None:
        threads.append(await sync_to_async(threading.current_thread)())

    bench.take(leave_blocked)
    assert blocked.wait(PATIENCE_SECONDS)
    if limit is None:
        bench.pool.cancel_all(CancelReason.TIMED_OUT)
    wait_until(lambda: bench.pool.done == 1)
    for count in (2, 3):
        bench.take(call)
        assert bench.events(count)[1:] == [Event.DELIVER] * (count - 1)
    assert threads[0] is not threads[1] is threads[2]
    may_end.set()
    wait_until(lambda: not threads[0].is_alive())


@pytest.mark.own_session
@pytest.mark.django_db(transaction=True)
def test_the_connection_of_a_blocked_thread_is_closed_when_the_thread_goes_on(
    bench: AsyncBench,
) -> None:
    pids, may_end = list[int](), threading.Event()

    def block() -> None:
        pids.append(_backend(spoil=False))
        may_end.wait(PATIENCE_SECONDS)

    async def leave_blocked(job: ClaimedJob) -> None:
        await sync_to_async(block)()

    bench.take(leave_blocked)
    wait_until(lambda: bool(pids))
    bench.pool.cancel_all(CancelReason.TIMED_OUT)
    wait_until(lambda: bench.pool.done == 1)
    may_end.set()
    wait_until(
        lambda: not set(pids) & {pid for (pid,) in rows_of("SELECT pid FROM pg_stat_activity")}
    )


@pytest.mark.own_session
@pytest.mark.django_db(transaction=True)
def test_the_next_handler_does_not_get_a_broken_connection(bench: AsyncBench) -> None:
    numbers: list[int] = []

    async def query(job: ClaimedJob) -> None:
        numbers.append(await sync_to_async(_backend)(spoil=not numbers))

    for count in range(1, 3):
        bench.take(query)
        bench.decided(count)
    assert bench.events(2) == [Event.DELIVER] * 2
    assert numbers[0] != numbers[1]

    async def close(job: ClaimedJob) -> None:
        await sync_to_async(connections.close_all)()

    bench.take(close)
    bench.decided(3)


@pytest.mark.own_session
@pytest.mark.django_db(transaction=True)
def test_the_connection_of_an_idle_context_is_closed_at_its_age(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Connections of idle contexts are closed at their maximum age, so a burst leaves none open."""
    monkeypatch.setattr(async_pool, "IDLE_CHECK", 0.05)
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 0)
    bench, pids = AsyncBench(), list[int]()

    async def query(job: ClaimedJob) -> None:
        pids.append(await sync_to_async(_backend)(spoil=False))

    bench.take(*[query] * 3)
    assert bench.events(3) == [Event.DELIVER] * 3
    wait_until(
        lambda: not set(pids) & {pid for (pid,) in rows_of("SELECT pid FROM pg_stat_activity")}
    )
    bench.loop.stop()


def _backend(*, spoil: bool) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [pid] = cursor.fetchone()
    if spoil:
        connection.set_autocommit(False)  # Left in a transaction.
    return int(pid)


def test_a_lost_job_is_cancelled_without_an_outcome(
    bench: AsyncBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "CANCEL_GRACE", 600)
    gate = Gate()
    [job] = bench.take(gate)
    wait_until(lambda: gate.running == 1)
    assert bench.buffer.runs.cancel(job.held, CancelReason.LOST)
    assert bench.decided() == [None]
    assert gate.cancelled == 1
    assert job.lost
    assert not bench.buffer.runs.current()


@pytest.mark.parametrize(
    ("reason", "event"),
    [(CancelReason.STOPPED, Event.RELEASE), (CancelReason.TIMED_OUT, Event.RETRY)],
)
def test_a_cancelled_job_gets_the_outcome_of_the_reason(
    bench: AsyncBench, reason: CancelReason, event: Event
) -> None:
    gate = Gate()
    bench.take(gate)
    wait_until(lambda: gate.running == 1)
    bench.pool.cancel_all(reason)
    bench.pool.cancel_all(CancelReason.LOST)  # The first reason counts.
    assert bench.events() == [event]
    assert gate.cancelled == 1


def test_an_outcome_reported_before_the_cancellation_counts(bench: AsyncBench) -> None:
    async def ack(job: ClaimedJob) -> None:
        job.ack({"n": 1})
        await asyncio.sleep(60)

    [job] = bench.take(ack)
    wait_until(lambda: job.settlement is not None)
    bench.pool.cancel_all(CancelReason.STOPPED)
    [outcome] = bench.decided()
    assert outcome == outcomes.deliver(job.held, '{"n": 1}', job)


def test_a_result_after_the_cancellation_is_discarded(bench: AsyncBench) -> None:
    begun = threading.Event()

    async def insist(job: ClaimedJob) -> str:
        try:
            begun.set()
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            return "too late"
        return "never"

    bench.take(insist)
    assert begun.wait(PATIENCE_SECONDS)
    bench.pool.cancel_all(CancelReason.STOPPED)
    assert bench.events() == [Event.RELEASE]


def test_a_handler_that_ignores_its_cancellation_holds_its_job_only_for_the_grace_time(
    bench: AsyncBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "CANCEL_GRACE", 0.2)
    begun, may_end = threading.Event(), threading.Event()

    async def ignore(job: ClaimedJob) -> str:
        begun.set()
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)
        return "late"

    bench.take(ignore)
    assert begun.wait(PATIENCE_SECONDS)
    bench.pool.cancel_all(CancelReason.TIMED_OUT)
    assert bench.events() == [Event.RETRY]
    assert bench.slots[2] != IDLE, "the handler still runs"
    may_end.set()
    wait_until(lambda: bench.slots[2] == IDLE)
    assert bench.events() == [Event.RETRY]


def raising(error: BaseException) -> Function:
    async def function(job: ClaimedJob) -> None:
        raise error

    return function


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (asyncio.CancelledError(), Event.RETRY),
        (KeyboardInterrupt(), Event.RETRY),
        (SystemExit(1), Event.RETRY),
        (TimeoutError(), Event.RETRY),
        (Retry(), Event.RETRY),
        (LeaseLost(1), None),
        (LeaseLost(2), Event.RETRY),
    ],
)
def test_the_loop_goes_on_whatever_a_handler_raises(
    bench: AsyncBench, error: BaseException, event: Event | None
) -> None:
    bench.take(raising(error))
    assert bench.events() == [event]
    bench.take(_nothing)
    assert bench.events(2) == [event, Event.DELIVER]


async def _nothing(job: ClaimedJob) -> None:
    pass


def test_a_stop_releases_waiting_jobs_and_lets_running_ones_end(bench: AsyncBench) -> None:
    gate = Gate()
    bench.take(*[gate] * 6)
    wait_until(lambda: gate.running == 4)
    bench.pool.release_waiting()
    assert bench.events(2) == [Event.RELEASE] * 2
    assert not bench.pool.join(time.monotonic() + 0.1)
    bench.take(gate)
    assert bench.events(3) == [Event.RELEASE] * 3
    gate.opened.set()
    assert bench.pool.join(time.monotonic() + PATIENCE_SECONDS)
    assert bench.events(7)[3:] == [Event.DELIVER] * 4


def test_a_job_that_was_lost_while_it_waited_is_not_run(bench: AsyncBench) -> None:
    gate = Gate()
    bench.take(*[gate] * 4)
    wait_until(lambda: gate.running == 4)
    job = unclaimed(9)
    job.handler = Handler(channel="c", consumer="c", function=gate)
    bench.pool.take([job])
    job.taken_away = True
    gate.opened.set()
    assert bench.events(5).count(None) == 1
    assert gate.most == 4


def test_a_handler_that_blocks_the_loop_makes_it_unhealthy(bench: AsyncBench) -> None:
    """The loop is unhealthy once it is silent for longer than `patience`, until it runs again."""
    blocked, may_end = threading.Event(), threading.Event()

    async def block(job: ClaimedJob) -> None:
        blocked.set()
        may_end.wait(PATIENCE_SECONDS)

    assert not bench.loop.is_unhealthy(patience=PATIENCE_SECONDS)
    bench.take(block)
    assert blocked.wait(PATIENCE_SECONDS)
    wait_until(lambda: bench.loop.is_unhealthy(patience=1.2))
    may_end.set()
    wait_until(lambda: not bench.loop.is_unhealthy(patience=1.2))


class Blocker:
    """Handler that blocks the event loop until the end of the test."""

    def __init__(self) -> None:
        self.blocked, self.may_end = threading.Event(), threading.Event()

    async def __call__(self, job: ClaimedJob) -> None:
        self.blocked.set()
        self.may_end.wait(PATIENCE_SECONDS)

    async def block_in_subtask(self, job: ClaimedJob) -> None:
        await asyncio.gather(self(job))


@pytest.fixture
def blocker(bench: AsyncBench) -> Iterator[Blocker]:
    blocker = Blocker()
    yield blocker
    blocker.may_end.set()


def test_a_time_limit_is_enforced_although_the_loop_is_blocked(
    bench: AsyncBench, blocker: Blocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "CANCEL_GRACE", 0.2)
    [job] = bench.take(blocker)
    assert blocker.blocked.wait(PATIENCE_SECONDS)
    assert bench.buffer.runs.cancel(job.held, CancelReason.TIMED_OUT)
    [outcome] = bench.decided()
    assert outcome
    assert (outcome.event, outcome.reason, outcome.started) == (Event.RETRY, "timed_out", None)


def test_only_the_job_that_blocks_the_loop_is_charged_and_a_suspect(
    bench: AsyncBench, blocker: Blocker
) -> None:
    gate = Gate()
    _neighbour, job = bench.take(gate, blocker)
    [outcome] = bench.decided_while_blocked(blocker)
    assert outcome
    assert (outcome.held, outcome.event, outcome.started) == (job.held, Event.RETRY, True)
    bench.loop.check(0)
    assert len(bench.buffer.results) == 1, "once"
    blocker.may_end.set()
    gate.opened.set()
    assert bench.events(2) == [Event.RETRY, Event.DELIVER]


def test_all_running_jobs_are_suspects_if_an_unknown_task_blocks_the_loop(
    bench: AsyncBench, blocker: Blocker
) -> None:
    bench.take(Gate(), blocker.block_in_subtask)
    decided = bench.decided_while_blocked(blocker, 2)
    assert [outcome and (outcome.event, outcome.started) for outcome in decided] == [
        (Event.RETRY, True)
    ] * 2


def test_no_job_is_charged_for_a_loop_that_goes_on_at_the_next_look(
    bench: AsyncBench, blocker: Blocker
) -> None:
    """A loop that is silent at one check only charges no job, as its process may be paused."""
    bench.take(blocker)
    assert blocker.blocked.wait(PATIENCE_SECONDS)
    wait_until(lambda: bench.loop.is_unhealthy(patience=1.2))
    bench.loop.check(patience=1.2)
    blocker.may_end.set()
    assert bench.events() == [Event.DELIVER]


def test_an_outcome_reported_before_the_loop_is_blocked_counts(
    bench: AsyncBench, blocker: Blocker
) -> None:
    async def ack(job: ClaimedJob) -> None:
        job.ack()
        await blocker(job)

    bench.take(ack)
    [outcome] = bench.decided_while_blocked(blocker)
    assert outcome
    assert outcome.event is Event.DELIVER


def test_transactional_and_async_is_refused_by_name() -> None:
    with registry_of_its_own():
        with pytest.raises(ConfigurationError, match=r"_nothing is transactional and async"):
            handler(channel="c", consumer="c", transactional=True)(_nothing)
        handler(channel="c", consumer="c", ack_policy=AckPolicy.MANUAL)(_nothing)


def test_a_job_whose_lease_is_over_by_the_clock_is_cancelled_and_released(
    bench: AsyncBench,
) -> None:
    """A job whose lease is over by the worker's clock is cancelled, with a release as outcome."""
    gate = Gate()
    [job] = bench.take(gate)
    wait_until(lambda: gate.running == 1)
    job.deadline = time.monotonic()
    [outcome] = bench.decided()
    assert outcome is not None
    assert outcome.event is Event.RELEASE
    assert gate.cancelled == 1


def test_an_acked_job_whose_lease_is_over_by_the_clock_is_delivered(bench: AsyncBench) -> None:
    gate = Gate()

    async def acks(job: ClaimedJob) -> None:
        job.ack("done")
        await gate(job)

    [job] = bench.take(acks)
    wait_until(lambda: gate.running == 1)
    job.deadline = time.monotonic()
    [outcome] = bench.decided()
    assert outcome is not None
    assert outcome.event is Event.DELIVER
    assert gate.cancelled == 1


def test_a_job_that_ends_although_its_lease_is_over_offers_its_outcome(bench: AsyncBench) -> None:
    begun = threading.Event()

    async def stubborn(job: ClaimedJob) -> str:
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(600)
        return "done all the same"

    [job] = bench.take(stubborn)
    assert begun.wait(PATIENCE_SECONDS)
    job.deadline = time.monotonic()
    [outcome] = bench.decided()
    assert outcome is not None
    assert outcome.event is Event.DELIVER


@pytest.mark.own_session
@pytest.mark.django_db(transaction=True)
def test_a_job_whose_lease_ends_while_connections_are_checked_is_released(
    bench: AsyncBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job whose lease ends during the check of a silent connection is released without a run."""
    monkeypatch.setattr(thread_connections, "ANSWER_SECONDS", 0.6)
    monkeypatch.setattr(deadlines, "GRACE_SECONDS", 0.6)
    stack, ran = ExitStack(), list[int]()

    def silence() -> None:
        stack.enter_context(behind(proxy)).ensure_connection()
        connection.errors_occurred = True
        proxy.silence()

    async def breaks(job: ClaimedJob) -> None:
        await sync_to_async(silence)()

    async def runs(job: ClaimedJob) -> None:
        ran.append(job.id)

    async def ends(job: ClaimedJob) -> None:
        await sync_to_async(stack.close)()

    with silent_proxy() as proxy:
        bench.take(breaks)
        assert bench.events(1) == [Event.DELIVER]
        late = unclaimed(2, lease_duration=0.4)
        late.handler = Handler(channel="c", consumer="c", function=runs)
        bench.pool.take([late])
        # Without the checks of the watchdog, which would cancel the job a little later.
        wait_until(lambda: len(bench.buffer.results) == 2)
        assert bench.events(2) == [Event.DELIVER, Event.RELEASE]
        assert ran == []
        assert late.begun_at is None, "its tokens are given back, and it has no run time"
        bench.take(ends)
        bench.events(3)


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_a_job_leaves_open_harms_no_later_job_of_the_context(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A transaction that a job leaves open is rolled back at once, and the log names the job."""
    bench = AsyncBench(1)

    def leave() -> None:
        transaction.atomic(using=USING).__enter__()
        Channel.objects.create(name="left")

    async def leaves(job: ClaimedJob) -> None:
        await sync_to_async(leave)()

    async def writes(job: ClaimedJob) -> None:
        await Channel.objects.acreate(name=f"kept-{job.id}")

    async def ends(job: ClaimedJob) -> None:
        await sync_to_async(connections.close_all)()

    bench.take(leaves)
    wait_until(lambda: caplog.messages == [thread_connections.LEFT_OPEN % (1, USING)])
    bench.take(writes, writes, ends)
    assert bench.events(4) == [Event.DELIVER] * 4
    bench.loop.stop()
    assert set(Channel.objects.values_list("name", flat=True)) == {"kept-1", "kept-2"}
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("policy", [AckPolicy.NACK_ON_ERROR, AckPolicy.ACK_FIRST])
@pytest.mark.parametrize("reason", [None, CancelReason.TIMED_OUT, CancelReason.STOPPED])
def test_a_job_that_is_cancelled_while_connections_are_checked_has_not_run(
    bench: AsyncBench,
    monkeypatch: pytest.MonkeyPatch,
    policy: AckPolicy,
    reason: CancelReason | None,
) -> None:
    checking, gate = threading.Event(), Gate()

    async def check(_context: HandlerContext) -> None:
        checking.set()
        await asyncio.sleep(600)

    monkeypatch.setattr(HandlerContext, "check", check)
    [job] = bench.take(gate, ack_policy=policy)
    assert checking.wait(PATIENCE_SECONDS)
    if reason is None:
        job.deadline = time.monotonic()  # The watchdog cuts it off.
    else:
        bench.pool.cancel_all(reason)
    assert bench.events() == [Event.RELEASE], "it is not charged"
    assert job.begun_at is None, "its tokens are given back, and it has no run time"
    assert gate.cancelled == 0
