"""Async handlers on the event loop: how many, in what surroundings, and how they are ended."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections

from pulljobs.engine import outcomes
from pulljobs.errors import ConfigurationError, LeaseLost, Retry
from pulljobs.handlers import AckPolicy, ClaimedJob, Handler, handler
from pulljobs.states import Event
from pulljobs.worker import async_pool, event_loop
from pulljobs.worker.async_pool import AsyncPool
from pulljobs.worker.event_loop import EventLoop
from pulljobs.worker.result_buffer import ResultBuffer
from pulljobs.worker.runs import CancelReason
from pulljobs.worker.shared_state import IDLE
from tests.handling import registry_of_its_own
from tests.sessions import PATIENCE_SECONDS, wait_until
from tests.sessions import query as rows_of
from tests.worker.claiming import unclaimed

Function = Callable[[ClaimedJob], Awaitable[Any]]
MARK: ContextVar[str] = ContextVar("MARK", default="none")


class Lane:
    """A pool with its loop, and what it says."""

    def __init__(self, concurrency: int = 4) -> None:
        self.loop, self.buffer = EventLoop(), ResultBuffer()
        self.patience: float = PATIENCE_SECONDS
        self.slots = [IDLE] * (concurrency + 2)
        self.pool = AsyncPool(
            concurrency, self.slots, 2, self.loop, self.buffer, on_low=lambda: None
        )
        self.loop.start()

    def take(self, *functions: Function, **how: Any) -> list[ClaimedJob]:
        jobs = [unclaimed(number) for number in range(1, len(functions) + 1)]
        for job, function in zip(jobs, functions, strict=True):
            job.handler = Handler(channel="c", consumer="c", function=function, **how)
        self.pool.take(jobs)
        return jobs

    def said(self, count: int = 1) -> list[outcomes.Settlement | None]:
        wait_until(lambda: self._has_said(count))
        return [word for _job, word in self.buffer.results]

    def said_blocked(self, block: "Block", count: int = 1) -> list[outcomes.Settlement | None]:
        """Once it is found that the loop stands still: after more than a beat."""
        assert block.blocked.wait(PATIENCE_SECONDS)
        self.patience = 1.2
        said = self.said(count)
        self.patience = PATIENCE_SECONDS
        return said

    def _has_said(self, count: int) -> bool:
        """As the watch has it, which looks again and again."""
        self.loop.check(self.patience)
        return len(self.buffer.results) >= count

    def events(self, count: int = 1) -> list[Event | None]:
        return [word.event if word else None for word in self.said(count)]


@pytest.fixture
def lane() -> Iterator[Lane]:
    made = Lane()
    yield made
    made.pool.cancel_all(CancelReason.STOPPED)
    made.pool.join(time.monotonic() + 5)
    made.loop.stop()


class Gate:
    """Handlers that run until it opens."""

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


def test_so_many_run_at_once_and_the_rest_waits(lane: Lane) -> None:
    gate = Gate()
    lane.take(*[gate] * 10)
    wait_until(lambda: gate.running == 4)
    assert lane.slots == [IDLE, IDLE, 1, 2, 3, 4]
    gate.opened.set()
    words = lane.said(10)
    assert gate.most == 4
    assert {word and word.result for word in words} == {str(number) for number in range(1, 11)}
    wait_until(lambda: lane.pool.done == 10)
    assert lane.slots == [IDLE] * 6


def test_a_callable_object_is_async_by_its_call() -> None:
    assert Handler(channel="c", consumer="c", function=Gate()).is_async
    assert not Handler(channel="c", consumer="c", function=lambda job: None).is_async


def test_what_a_handler_sets_no_other_sees(lane: Lane) -> None:
    seen: list[str] = []

    async def set_and_tell(job: ClaimedJob) -> None:
        seen.append(MARK.get())
        MARK.set(f"job {job.id}")
        await asyncio.sleep(0)
        assert MARK.get() == f"job {job.id}"

    lane.take(*[set_and_tell] * 12)
    lane.said(12)
    assert seen == ["none"] * 12


def test_synchronous_calls_of_a_handler_share_a_thread_and_those_of_others_don_t_wait(
    lane: Lane,
) -> None:
    """As for requests under ASGI: what a handler does to its connection is its own."""
    meeting = threading.Barrier(3, timeout=PATIENCE_SECONDS)
    threads: list[tuple[int, int]] = []

    async def call(job: ClaimedJob) -> None:
        first = await sync_to_async(threading.get_ident)()
        await sync_to_async(meeting.wait)()
        threads.append((first, await sync_to_async(threading.get_ident)()))

    lane.take(*[call] * 3)
    assert lane.events(3) == [Event.DELIVER] * 3
    assert len({first for first, _second in threads}) == 3
    assert all(first == second for first, second in threads)


def test_handlers_one_after_the_other_share_a_thread(lane: Lane) -> None:
    """So few jobs need few database connections, whatever the concurrency."""
    threads: set[int] = set()

    async def call(job: ClaimedJob) -> None:
        threads.add(await sync_to_async(threading.get_ident)())

    for count in range(1, 8):
        lane.take(call)
        lane.said(count)
    assert len(threads) == 1


@pytest.mark.parametrize("limit", [None, 0.01])
def test_thread_that_a_handler_left_blocked_is_not_the_next_handler_s(
    lane: Lane, limit: float | None
) -> None:
    """Neither by the worker's end to it nor by one of its own does a synchronous call end."""
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

    lane.take(leave_blocked)
    assert blocked.wait(PATIENCE_SECONDS)
    if limit is None:
        lane.pool.cancel_all(CancelReason.TIMED_OUT)
    wait_until(lambda: lane.pool.done == 1)
    for count in (2, 3):
        lane.take(call)
        assert lane.events(count)[1:] == [Event.DELIVER] * (count - 1)
    assert threads[0] is not threads[1] is threads[2]
    may_end.set()
    wait_until(lambda: not threads[0].is_alive())


@pytest.mark.own_session
@pytest.mark.django_db(transaction=True)
def test_connection_of_a_thread_that_was_left_blocked_is_closed_when_it_goes_on(
    lane: Lane,
) -> None:
    pids, may_end = list[int](), threading.Event()

    def block() -> None:
        pids.append(_backend(spoil=False))
        may_end.wait(PATIENCE_SECONDS)

    async def leave_blocked(job: ClaimedJob) -> None:
        await sync_to_async(block)()

    lane.take(leave_blocked)
    wait_until(lambda: bool(pids))
    lane.pool.cancel_all(CancelReason.TIMED_OUT)
    wait_until(lambda: lane.pool.done == 1)
    may_end.set()
    wait_until(
        lambda: not set(pids) & {pid for (pid,) in rows_of("SELECT pid FROM pg_stat_activity")}
    )


@pytest.mark.own_session
@pytest.mark.django_db(transaction=True)
def test_broken_connection_is_not_the_next_handler_s(lane: Lane) -> None:
    numbers: list[int] = []

    async def query(job: ClaimedJob) -> None:
        numbers.append(await sync_to_async(_backend)(spoil=not numbers))

    for count in range(1, 3):
        lane.take(query)
        lane.said(count)
    assert lane.events(2) == [Event.DELIVER] * 2
    assert numbers[0] != numbers[1]

    async def close(job: ClaimedJob) -> None:
        await sync_to_async(connections.close_all)()

    lane.take(close)
    lane.said(3)


@pytest.mark.own_session
@pytest.mark.django_db(transaction=True)
def test_connection_of_a_seat_that_nobody_needs_is_closed_when_its_age_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As at the end of a request; a burst must not leave its connections behind."""
    monkeypatch.setattr(async_pool, "IDLE_CHECK", 0.05)
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 0)
    lane, pids = Lane(), list[int]()

    async def query(job: ClaimedJob) -> None:
        pids.append(await sync_to_async(_backend)(spoil=False))

    lane.take(*[query] * 3)
    assert lane.events(3) == [Event.DELIVER] * 3
    wait_until(
        lambda: not set(pids) & {pid for (pid,) in rows_of("SELECT pid FROM pg_stat_activity")}
    )
    lane.loop.stop()


def _backend(*, spoil: bool) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [pid] = cursor.fetchone()
    if spoil:
        connection.set_autocommit(False)  # left behind in a transaction
    return int(pid)


def test_lost_job_is_cancelled_and_nothing_is_said_for_it(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "CANCEL_GRACE", 600)
    gate = Gate()
    [job] = lane.take(gate)
    wait_until(lambda: gate.running == 1)
    assert lane.buffer.runs.cancel(job.held, CancelReason.LOST)
    assert lane.said() == [None]
    assert gate.cancelled == 1
    assert job.lost
    assert not lane.buffer.runs.current()


@pytest.mark.parametrize(
    ("why", "event"), [(CancelReason.STOPPED, Event.RELEASE), (CancelReason.TIMED_OUT, Event.RETRY)]
)
def test_cancelled_job_goes_its_way(lane: Lane, why: CancelReason, event: Event) -> None:
    gate = Gate()
    lane.take(gate)
    wait_until(lambda: gate.running == 1)
    lane.pool.cancel_all(why)
    lane.pool.cancel_all(CancelReason.LOST)  # the first word stands
    assert lane.events() == [event]
    assert gate.cancelled == 1


def test_what_a_handler_said_before_it_was_cancelled_stands(lane: Lane) -> None:
    async def ack(job: ClaimedJob) -> None:
        job.ack({"n": 1})
        await asyncio.sleep(60)

    [job] = lane.take(ack)
    wait_until(lambda: job.settlement is not None)
    lane.pool.cancel_all(CancelReason.STOPPED)
    [word] = lane.said()
    assert word == outcomes.deliver(job.held, '{"n": 1}')


def test_result_that_comes_after_the_cancelling_is_discarded(lane: Lane) -> None:
    begun = threading.Event()

    async def insist(job: ClaimedJob) -> str:
        try:
            begun.set()
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            return "all the same"
        return "never"

    lane.take(insist)
    assert begun.wait(PATIENCE_SECONDS)
    lane.pool.cancel_all(CancelReason.STOPPED)
    assert lane.events() == [Event.RELEASE]


def test_handler_that_ignores_it_holds_its_job_back_no_longer_than_that(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "CANCEL_GRACE", 0.2)
    begun, may_end = threading.Event(), threading.Event()

    async def ignore(job: ClaimedJob) -> str:
        begun.set()
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)
        return "late"

    lane.take(ignore)
    assert begun.wait(PATIENCE_SECONDS)
    lane.pool.cancel_all(CancelReason.TIMED_OUT)
    assert lane.events() == [Event.RETRY]
    assert lane.slots[2] != IDLE, "it goes on"
    may_end.set()
    wait_until(lambda: lane.slots[2] == IDLE)
    assert lane.events() == [Event.RETRY]


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
    ],
)
def test_whatever_a_handler_raises_the_loop_goes_on(
    lane: Lane, error: BaseException, event: Event | None
) -> None:
    lane.take(raising(error))
    assert lane.events() == [event]
    lane.take(_nothing)
    assert lane.events(2) == [event, Event.DELIVER]


async def _nothing(job: ClaimedJob) -> None:
    pass


def test_what_waits_when_it_stops_is_given_back_and_what_runs_ends(lane: Lane) -> None:
    gate = Gate()
    lane.take(*[gate] * 6)
    wait_until(lambda: gate.running == 4)
    lane.pool.release_waiting()
    assert lane.events(2) == [Event.RELEASE] * 2
    assert not lane.pool.join(time.monotonic() + 0.1)
    lane.take(gate)
    assert lane.events(3) == [Event.RELEASE] * 3
    gate.opened.set()
    assert lane.pool.join(time.monotonic() + PATIENCE_SECONDS)
    assert lane.events(7)[3:] == [Event.DELIVER] * 4


def test_job_that_was_lost_while_it_waited_is_not_run(lane: Lane) -> None:
    gate = Gate()
    lane.take(*[gate] * 4)
    wait_until(lambda: gate.running == 4)
    job = unclaimed(9)
    job.handler = Handler(channel="c", consumer="c", function=gate)
    lane.pool.take([job])
    job.taken_away = True
    gate.opened.set()
    assert lane.events(5).count(None) == 1
    assert gate.most == 4


def test_handler_that_blocks_the_loop_shows(lane: Lane) -> None:
    """For longer than a beat: in between a loop that turns is not heard of either."""
    blocked, may_end = threading.Event(), threading.Event()

    async def block(job: ClaimedJob) -> None:
        blocked.set()
        may_end.wait(PATIENCE_SECONDS)

    assert not lane.loop.is_unhealthy(patience=PATIENCE_SECONDS)
    lane.take(block)
    assert blocked.wait(PATIENCE_SECONDS)
    wait_until(lambda: lane.loop.is_unhealthy(patience=1.2))
    may_end.set()
    wait_until(lambda: not lane.loop.is_unhealthy(patience=1.2))


class Block:
    """Handlers that keep the loop from turning until the end of the test."""

    def __init__(self) -> None:
        self.blocked, self.may_end = threading.Event(), threading.Event()

    async def __call__(self, job: ClaimedJob) -> None:
        self.blocked.set()
        self.may_end.wait(PATIENCE_SECONDS)

    async def below(self, job: ClaimedJob) -> None:
        await asyncio.gather(self(job))


@pytest.fixture
def block(lane: Lane) -> Iterator[Block]:
    made = Block()
    yield made
    made.may_end.set()


def test_over_its_time_is_said_though_the_loop_stands_still(
    lane: Lane, block: Block, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "CANCEL_GRACE", 0.2)
    [job] = lane.take(block)
    assert block.blocked.wait(PATIENCE_SECONDS)
    assert lane.buffer.runs.cancel(job.held, CancelReason.TIMED_OUT)
    [word] = lane.said()
    assert word
    assert (word.event, word.reason, word.started) == (Event.RETRY, "timed_out", None)


def test_who_blocks_the_loop_is_charged_and_a_suspect_and_nobody_beside_it(
    lane: Lane, block: Block
) -> None:
    gate = Gate()
    _beside, job = lane.take(gate, block)
    [word] = lane.said_blocked(block)
    assert word
    assert (word.held, word.event, word.started) == (job.held, Event.RETRY, True)
    lane.loop.check(0)
    assert len(lane.buffer.results) == 1, "once"
    block.may_end.set()
    gate.opened.set()
    assert lane.events(2) == [Event.RETRY, Event.DELIVER]


def test_all_are_suspects_where_nobody_knows_whose_task_blocks_the_loop(
    lane: Lane, block: Block
) -> None:
    lane.take(Gate(), block.below)
    words = lane.said_blocked(block, 2)
    assert [word and (word.event, word.started) for word in words] == [(Event.RETRY, True)] * 2


def test_nobody_is_blamed_for_a_loop_that_goes_on_at_the_next_look(
    lane: Lane, block: Block
) -> None:
    """As after a pause of the whole process, from which the watch may be the first to wake."""
    lane.take(block)
    assert block.blocked.wait(PATIENCE_SECONDS)
    wait_until(lambda: lane.loop.is_unhealthy(patience=1.2))
    lane.loop.check(patience=1.2)
    block.may_end.set()
    assert lane.events() == [Event.DELIVER]


def test_what_a_handler_said_before_it_blocked_the_loop_stands(lane: Lane, block: Block) -> None:
    async def ack(job: ClaimedJob) -> None:
        job.ack()
        await block(job)

    lane.take(ack)
    [word] = lane.said_blocked(block)
    assert word
    assert word.event is Event.DELIVER


def test_transactional_and_async_is_refused_by_name() -> None:
    with registry_of_its_own():
        with pytest.raises(ConfigurationError, match=r"_nothing is transactional and async"):
            handler(channel="c", consumer="c", transactional=True)(_nothing)
        handler(channel="c", consumer="c", ack_policy=AckPolicy.MANUAL)(_nothing)
