"""Pool of async handlers on the event loop, and the contexts in which they run."""

import asyncio
import heapq
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import connections

from pulljobs.engine.outcomes import Settlement
from pulljobs.engine.run_times import RunTime
from pulljobs.handlers import ClaimedJob
from pulljobs.worker.event_loop import EventLoop, LoopTasks, NotStarted
from pulljobs.worker.executor import aperform
from pulljobs.worker.job_pool import LONGEST_STALL, ClaimAhead
from pulljobs.worker.result_buffer import ResultBuffer
from pulljobs.worker.runs import CancelReason
from pulljobs.worker.shared_state import IDLE, Slots
from pulljobs.worker.thread_connections import ThreadConnections, close_unusable_connections
from pulljobs.worker.thread_pool import IDLE_CHECK


class SyncCalls(ThreadPoolExecutor):
    """Executor for the synchronous calls of async handlers, in a thread that starts when needed."""

    def __init__(self) -> None:
        super().__init__(max_workers=1, thread_name_prefix="sync-calls")
        self.count = 0
        self._open: set[Future[Any]] = set()

    @property
    def are_busy(self) -> bool:
        """True if a call runs, even a cancelled one that no handler waits for."""
        return bool(self._open)

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.count += 1
        self._open.add(future := super().submit(call, *args, **kwargs))
        future.add_done_callback(self._open.discard)
        return future


class HandlerContext:
    """Context of context variables in which one handler after another runs, as requests do in ASGI.

    The thread-sensitive calls of a context share one thread. So handlers do not wait for each
    other's queries, and about as many threads have connections as handlers ran at the same time.
    """

    def __init__(self) -> None:
        self._context = copy_context()
        self._calls, key = SyncCalls(), ThreadSensitiveContext()
        SyncToAsync.context_to_thread_executor[key] = self._calls
        self._context.run(SyncToAsync.thread_sensitive_context.set, key)
        self._connections, self._checked_at = ThreadConnections(), 0
        self._is_tidy = False

    def copy(self) -> Context:
        """Return a copy for the next handler, which does not see what earlier handlers set."""
        return self._context.copy()

    def after_use(self, job_id: int) -> "HandlerContext":
        """Return the context for the next handler: this one, or a new one if its thread is busy.

        A busy thread can't be stopped. It closes its connections once its call has returned.
        Otherwise the thread ends the transactions that the handler of the job left open there.
        """
        if self._calls.are_busy:
            self._calls.submit(connections.close_all)
            return self._context.run(HandlerContext)
        if self._calls.count > self._checked_at:
            self._calls.submit(self._connections.end_transactions, job_id)
        return self

    async def check(self) -> None:
        """Close broken or old connections of the thread before a handler runs."""
        self._is_tidy = False
        if self._calls.count:
            await sync_to_async(self._connections.check)(time.monotonic())
        self._checked_at = self._calls.count

    def needs_tidying(self) -> bool:
        """Return True if there is a thread, and a handler has run since the last call of this."""
        was_used = self._calls.count > 0 and not self._is_tidy
        self._is_tidy = True
        return was_used

    async def tidy(self) -> None:
        """Close connections of the idle context that are broken or too old."""
        await sync_to_async(close_unusable_connections)()


class AsyncPool:
    """Job pool of async handlers.

    Each run uses the connections of the lowest free slot, so that few jobs open few of them.
    """

    reports_room = False

    def __init__(
        self,
        concurrency: int,
        slots: Slots,
        first_slot: int,
        loop: EventLoop,
        buffer: ResultBuffer,
        on_low: Callable[[], None],
    ) -> None:
        """`on_low` wakes the fetcher. Each end of a run calls it if half of the queue has begun."""
        self.done = 0
        self._slots, self._first_slot = slots, first_slot
        self._loop, self._buffer, self._on_low = loop, buffer, on_low
        self._tasks = LoopTasks(loop, buffer)
        self._waiting: deque[ClaimedJob] = deque()
        self._contexts = [HandlerContext() for _slot in range(concurrency)]
        self._free = list(range(concurrency))
        self._ahead = ClaimAhead(range(first_slot, first_slot + concurrency), buffer.runs)
        self._low_water = 0
        self._closing = False
        self._tidying: set[asyncio.Task[Any]] = set()
        loop.call(self._tidy)
        loop.call(self._check_stall, -1)

    def room(self, run_time: RunTime) -> int:
        """Return how many more jobs of a handler may be claimed now.

        The pool calls `on_low` once half of its queue, with these jobs in it, has begun.
        """
        waiting = len(self._waiting)
        room = self._ahead.room(run_time, waiting)
        self._low_water = (waiting + room) // 2
        return room

    def take(self, jobs: Sequence[ClaimedJob]) -> None:
        """Queue the jobs of a claim."""
        self._ahead.queue(jobs)
        self._waiting.extend(jobs)
        self._loop.call(self._fill)

    def release_waiting(self) -> None:
        """Release, now and from now on, every job that has not started."""
        self._closing = True
        self._loop.call(self._fill)

    def join(self, deadline: float) -> bool:
        """Wait until all running jobs have an outcome. Return False at the monotonic `deadline`."""
        return self._tasks.join(deadline)

    def cancel_all(self, reason: CancelReason) -> None:
        self._tasks.cancel_all(reason)

    def _fill(self) -> None:
        while self._waiting and (self._free or self._closing):
            job = self._waiting.popleft()
            if self._closing or job.is_late_at(time.monotonic()):
                self._buffer.release(job)
            else:
                self._start(job, heapq.heappop(self._free))
        if len(self._waiting) <= self._low_water:
            self._on_low()

    def _tidy(self) -> None:
        for number in self._free:
            context = self._contexts[number]
            if context.needs_tidying():
                self._tidying.add(task := self._loop.spawn(context.tidy(), context.copy()))
                task.add_done_callback(self._tidying.discard)
        self._loop.later(IDLE_CHECK, self._tidy)

    def _check_stall(self, done_before: int) -> None:
        """Release the waiting jobs to other workers if no handler ended for `LONGEST_STALL` s.

        `done_before` is `self.done` at the last check, or -1 if no job was waiting then.
        """
        while self._waiting and self.done == done_before:
            self._buffer.release(self._waiting.popleft())
        self._loop.later(LONGEST_STALL, self._check_stall, self.done if self._waiting else -1)

    def _start(self, job: ClaimedJob, number: int) -> None:
        context, slot = self._contexts[number], self._first_slot + number
        self._slots[slot] = job.held.job_id

        def leave() -> None:
            self._slots[slot] = IDLE
            self._contexts[number] = context.after_use(job.id)
            self.done += 1
            heapq.heappush(self._free, number)
            self._fill()

        self._tasks.start(job, slot, _perform(context, job), leave, context.copy())


async def _perform(context: HandlerContext, job: ClaimedJob) -> Settlement | None:
    await context.check()
    if job.is_late_at(time.monotonic()):  # The check of connections may have taken seconds.
        raise NotStarted
    return await aperform(job)
