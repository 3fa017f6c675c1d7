"""Thread pool that runs synchronous handlers."""

import threading
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from queue import Empty
from typing import Final

from django.db import connections

from pulljobs.conf import Settings
from pulljobs.engine.run_times import RunTime
from pulljobs.handlers import ClaimedJob
from pulljobs.worker.executor import outcome_of_cancelled, perform
from pulljobs.worker.job_pool import LONGEST_STALL, ClaimAhead
from pulljobs.worker.job_queue import JobQueue
from pulljobs.worker.result_buffer import ResultBuffer
from pulljobs.worker.runs import HandlerRun, RunSlot
from pulljobs.worker.shared_state import IDLE, Slots
from pulljobs.worker.thread_connections import (
    ThreadConnections,
    close_unusable_connections,
    make_caches,
)

LOOK: Final = 0.1
IDLE_CHECK: Final = 5.0
"""Seconds of idleness after which the connections of a thread are checked for their age."""
NEVER: Final = -1
"""Length to which no queue of jobs falls: `on_low` is not called until `room` sets another one."""


def slot_count(limits: Settings) -> int:
    """Return how many handlers a process runs at once: in threads, and async ones."""
    return limits.CONCURRENCY + limits.ASYNC_CONCURRENCY


class ThreadPool:
    """Job pool of synchronous handlers: threads that take jobs from one queue."""

    reports_room = False

    def __init__(
        self, concurrency: int, slots: Slots, buffer: ResultBuffer, on_low: Callable[[], None]
    ) -> None:
        """`on_low` wakes the fetcher. The pool calls it when half of its queue has begun."""
        self._waiting = JobQueue(concurrency)
        self.done = 0
        """Jobs done so far. They are counted without a lock, so the number may be a few too low."""
        self._slots, self._buffer, self._on_low = slots, buffer, on_low
        self._low_water = 0
        self._ahead = ClaimAhead(range(concurrency), buffer.runs)
        self._closing = self._ending = False
        self._blocked_at, self._blocked_since = 0, time.monotonic()
        self._threads = [
            threading.Thread(target=self._work, args=(slot,), name=f"worker-{slot}", daemon=True)
            for slot in range(concurrency)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

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
        self._waiting.put(jobs)

    def release_waiting(self) -> None:
        """Release, now and from now on, every job that no thread has started."""
        self._closing = True
        self._empty_queue()

    def check(self) -> None:
        """Release the waiting jobs to other workers if no job ended for `LONGEST_STALL` s."""
        now = time.monotonic()
        if self._closing or self.done != self._blocked_at or not self._waiting:
            self._blocked_at, self._blocked_since = self.done, now
        elif now - self._blocked_since > LONGEST_STALL:
            self._empty_queue()

    def _empty_queue(self) -> None:
        for job in self._waiting.empty():
            self._buffer.release(job)

    def end(self) -> None:
        """End each thread once it runs no job and none waits. Nothing may be queued afterwards."""
        self._ending = True
        self._waiting.end()

    def join(self, deadline: float) -> bool:
        """Wait for the threads until a monotonic time. Return False if some are still busy.

        Threads that are stuck in cancelled handlers do not count.
        """
        while (busy := self._busy()) and time.monotonic() < deadline:
            busy[0].join(min(LOOK, max(0.0, deadline - time.monotonic())))
        return not busy

    def _busy(self) -> list[threading.Thread]:
        """Return the threads that have not ended, except those with a cancelled handler."""
        cancelled = {
            run.thread for run in self._buffer.runs.current() if run.cancel_reason is not None
        }
        return [
            thread
            for thread in self._threads
            if thread.is_alive() and thread.ident not in cancelled
        ]

    def is_unhealthy(self, patience: float) -> bool:
        """Return True if a thread ended before `end` was called. `patience` is not used here."""
        return not self._ending and any(
            thread.ident is not None and not thread.is_alive() for thread in self._threads
        )

    def _work(self, number: int) -> None:
        make_caches()
        kept, slot = ThreadConnections(), self._buffer.runs.slot(number, self._on_cancel)
        while True:
            try:
                job = self._waiting.get(number, IDLE_CHECK)
            except Empty:
                close_unusable_connections()
                continue
            if job is None:
                break
            kept.check(time.monotonic())
            self._do(slot, job)
            kept.end_transactions(job.id)
            if len(self._waiting) <= self._low_water:
                self._low_water = NEVER  # Until the fetcher asks for the room.
                self._on_low()
        connections.close_all()

    def _do(self, slot: RunSlot, job: ClaimedJob) -> None:
        now = time.monotonic()  # The check of connections may have taken seconds.
        if self._closing or job.is_late_at(now):
            self._buffer.release(job)
            return
        self._buffer.runs.begin(job, slot, now)
        number = slot.number
        self._slots[number] = job.held.job_id  # From here on a crash is charged to the job.
        # In a copy, so that the next job does not see context variables such as the language.
        settlement = copy_context().run(perform, job)
        self._slots[number] = IDLE
        self.done += 1
        self._buffer.end(job, settlement)

    def _on_cancel(self, run: HandlerRun) -> None:
        """Buffer the outcome of a cancelled run at once, because its thread can't be ended."""
        self._buffer.add(run.job, outcome_of_cancelled(run))
