"""The lane of async handlers."""

import asyncio
import heapq
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections

from pulljobs.engine.outcomes import Settlement
from pulljobs.handlers import ClaimedJob
from pulljobs.worker.event_loop import EventLoop, Tasks
from pulljobs.worker.executor import aperform
from pulljobs.worker.job_pool import Pace
from pulljobs.worker.result_buffer import Outbox
from pulljobs.worker.runs import Ended
from pulljobs.worker.shared_state import IDLE, Slots
from pulljobs.worker.thread_pool import TIDY, Connections


class Calls(ThreadPoolExecutor):
    """Synchronous calls in one thread, which begins with the first of them."""

    def __init__(self) -> None:
        super().__init__(max_workers=1, thread_name_prefix="seat")
        self.had_any = False
        self._open: set[Future[Any]] = set()

    @property
    def are_busy(self) -> bool:
        """Also with calls that nobody waits for any more: a cancelled one runs on."""
        return bool(self._open)

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.had_any = True
        self._open.add(made := super().submit(call, *args, **kwargs))
        made.add_done_callback(self._open.discard)
        return made


class Seat:
    """What a handler is given to run in: a context whose synchronous calls share one thread.

    As each request has one under ASGI. So handlers don't wait for each other's queries, and there
    are no more database connections than handlers that ran at once and asked for one.
    """

    def __init__(self) -> None:
        self._context = copy_context()
        self._calls, here = Calls(), ThreadSensitiveContext()
        SyncToAsync.context_to_thread_executor[here] = self._calls
        self._context.run(SyncToAsync.thread_sensitive_context.set, here)
        self._connections: Connections | None = None
        self._is_tidy = False

    def context(self) -> Context:
        """A new one for each handler: what one sets there, the next does not see."""
        return self._context.copy()

    def after_use(self) -> "Seat":
        """For the next handler: itself, or one with a thread that nothing keeps busy.

        What blocks the old thread can't be ended. That thread ends once no task can call it.
        """
        if not self._calls.are_busy:
            return self
        self._calls.submit(connections.close_all)
        return self._context.run(Seat)

    async def check(self) -> None:
        """Before a handler: no broken connection in that thread, and now and then no old one."""
        self._is_tidy = False
        if self._calls.had_any:
            await sync_to_async(self._check)()

    def needs_tidying(self) -> bool:
        """Whether it was used since the last time."""
        was_used = self._calls.had_any and not self._is_tidy
        self._is_tidy = True
        return was_used

    async def tidy(self) -> None:
        """Nobody may sit here for long: no connection is kept beyond its age."""
        await sync_to_async(close_old_connections)()

    def _check(self) -> None:
        if self._connections is None:
            self._connections = Connections()
        self._connections.check(time.monotonic())


class AsyncPool:
    """Runs so many at once, each in the lowest free seat, so that few jobs need few connections."""

    calls_back = False

    def __init__(
        self,
        concurrency: int,
        slots: Slots,
        first_slot: int,
        loop: EventLoop,
        outbox: Outbox,
        on_low: Callable[[], None],
    ) -> None:
        self.done = 0
        self._slots, self._first_slot = slots, first_slot
        self._loop, self._outbox, self._on_low = loop, outbox, on_low
        self._tasks = Tasks(loop, outbox)
        self._waiting: deque[ClaimedJob] = deque()
        self._seats = [Seat() for _seat in range(concurrency)]
        self._free = list(range(concurrency))
        self._pace = Pace(concurrency)
        self._low_water = 0
        self._closing = False
        self._tidying: set[asyncio.Task[Any]] = set()
        loop.call(self._tidy)

    def room(self) -> int:
        ahead = self._pace.ahead(self.done)
        self._low_water = ahead // 2
        return ahead + len(self._free) - len(self._waiting)

    def take(self, jobs: Sequence[ClaimedJob]) -> None:
        self._waiting.extend(jobs)
        self._loop.call(self._fill)

    def give_back(self) -> None:
        """From now on release what has not begun."""
        self._closing = True
        self._loop.call(self._fill)

    def join(self, deadline: float) -> bool:
        return self._tasks.join(deadline)

    def cancel_all(self, why: Ended) -> None:
        self._tasks.cancel_all(why)

    def _fill(self) -> None:
        while self._waiting and (self._free or self._closing):
            job = self._waiting.popleft()
            if self._closing or job.is_late_at(time.monotonic()):
                self._outbox.release(job)
            else:
                self._start(job, heapq.heappop(self._free))
        if len(self._waiting) <= self._low_water:
            self._on_low()

    def _tidy(self) -> None:
        while self._waiting and self._waiting[0].is_late_at(time.monotonic()):
            self._outbox.release(self._waiting.popleft())  # Another process may have a free seat.
        for number in self._free:
            seat = self._seats[number]
            if seat.needs_tidying():
                self._tidying.add(task := self._loop.spawn(seat.tidy(), seat.context()))
                task.add_done_callback(self._tidying.discard)
        self._loop.later(TIDY, self._tidy)

    def _start(self, job: ClaimedJob, number: int) -> None:
        seat, slot = self._seats[number], self._first_slot + number
        self._slots[slot] = job.held.job_id

        def leave() -> None:
            self._slots[slot] = IDLE
            self._seats[number] = seat.after_use()
            self.done += 1
            heapq.heappush(self._free, number)
            self._fill()

        self._tasks.start(job, slot, _perform(seat, job), leave, seat.context())


async def _perform(seat: Seat, job: ClaimedJob) -> Settlement | None:
    await seat.check()
    return await aperform(job)
