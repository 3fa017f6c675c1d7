"""Threads that run handlers."""

import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Final

from django.db import close_old_connections, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from pulljobs.conf import Settings
from pulljobs.handlers import ClaimedJob
from pulljobs.worker.executor import perform, word_for
from pulljobs.worker.job_pool import LONGEST_WAIT, Pace
from pulljobs.worker.result_buffer import Outbox
from pulljobs.worker.runs import Run, Slot
from pulljobs.worker.shared_state import IDLE, Slots

LOOK: Final = 0.1
AGE_CHECK: Final = 1.0
TIDY: Final = 5.0
"""Idle for so long, a thread or a seat keeps no connection beyond its age."""
NEVER: Final = -1
"""A low water that is not reached."""


def slots_of(limits: Settings) -> int:
    """How many there are: threads first, then the seats of async handlers."""
    return limits.CONCURRENCY + limits.ASYNC_CONCURRENCY


class Pool:
    """The lane of plain handlers: takes jobs from one queue, says what became of them."""

    calls_back = False

    def __init__(
        self, concurrency: int, slots: Slots, outbox: Outbox, on_low: Callable[[], None]
    ) -> None:
        self.waiting: SimpleQueue[ClaimedJob | None] = SimpleQueue()
        self.done = 0
        """Jobs done so far; counted without a lock, for pace only."""
        self._slots, self._outbox, self._on_low = slots, outbox, on_low
        self._low_water = 0
        """The fetcher is told when fewer wait."""
        self._pace = Pace(concurrency)
        self._closing = False
        self._stood_at, self._stood_since = 0, time.monotonic()
        self._threads = [
            threading.Thread(target=self._work, args=(slot,), name=f"worker-{slot}", daemon=True)
            for slot in range(concurrency)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def room(self) -> int:
        ahead = self._pace.ahead(self.done)
        self._low_water = ahead // 2
        return ahead + self._free() - self.waiting.qsize()

    def _free(self) -> int:
        """Threads with nothing to do."""
        return self._slots[: len(self._threads)].count(IDLE)

    def take(self, jobs: Sequence[ClaimedJob]) -> None:
        put = self.waiting.put
        for job in jobs:
            put(job)

    def give_back(self) -> None:
        """From now on release what no thread has taken up yet."""
        self._closing = True
        self._release_waiting()

    def mind(self) -> None:
        """Release what waits while no thread comes free: another process may have one."""
        now = time.monotonic()
        if self._closing or self.done != self._stood_at or not self.waiting.qsize():
            self._stood_at, self._stood_since = self.done, now
        elif now - self._stood_since > LONGEST_WAIT.total_seconds():
            self._pace = Pace(0)
            self._release_waiting()

    def _release_waiting(self) -> None:
        try:
            while (job := self.waiting.get_nowait()) is not None:
                self._outbox.release(job)
        except Empty:
            return

    def end(self) -> None:
        """Let each thread end after what it runs; nothing is put into `waiting` any more."""
        for _thread in self._threads:
            self.waiting.put(None)

    def join(self, deadline: float) -> bool:
        """Whether all threads ended before that monotonic time, but for those that are stuck."""
        while (busy := self._busy()) and time.monotonic() < deadline:
            busy[0].join(min(LOOK, max(0.0, deadline - time.monotonic())))
        return not busy

    def _busy(self) -> list[threading.Thread]:
        """Of which something is to be expected still."""
        cancelled = {run.thread for run in self._outbox.runs.now() if run.ended is not None}
        return [one for one in self._threads if one.is_alive() and one.ident not in cancelled]

    def _work(self, number: int) -> None:
        kept, slot = Connections(), self._outbox.runs.slot(number, self._on_cancel)
        while True:
            try:
                job = self.waiting.get(timeout=TIDY)
            except Empty:
                close_old_connections()
                continue
            if job is None:
                break
            now = time.monotonic()
            kept.check(now)
            self._do(slot, job, now)
            if self.waiting.qsize() <= self._low_water:
                self._low_water = NEVER  # Until the fetcher has looked.
                self._on_low()
        connections.close_all()

    def _do(self, slot: Slot, job: ClaimedJob, now: float) -> None:
        if self._closing or job.is_late_at(now):
            self._outbox.release(job)
            return
        self._outbox.runs.begin(job, slot, now)
        number = slot.number
        self._slots[number] = job.held.job_id  # From here on it is to blame if the process ends.
        settlement = perform(job)
        self._slots[number] = IDLE
        self.done += 1
        self._outbox.end(job, settlement)

    def _on_cancel(self, run: Run) -> None:
        """A thread can't be ended: its job goes its way at once, whatever it says later."""
        self._outbox.say(run.job, word_for(run))


class _Opened:
    """How many connections this process has opened: a thread may have one that it did not have.

    To ask Django for a thread's connections costs more than a small job.
    """

    count = 0

    def tell(self, **_kwargs: object) -> None:
        self.count += 1


_opened: Final = _Opened()
connection_created.connect(_opened.tell)


class Connections:
    """The database connections of this thread, kept as a web server keeps them between requests."""

    def __init__(self) -> None:
        self._open: Sequence[BaseDatabaseWrapper] = ()
        self._of_opened, self._aged_at = -1, time.monotonic()

    def check(self, now: float) -> None:
        """Before a job: no broken connection, and now and then no old one."""
        if self._of_opened != _opened.count:
            self._of_opened = _opened.count
            self._open = connections.all(initialized_only=True)
        if self._open:
            self._check_open(now)

    def _check_open(self, now: float) -> None:
        if now - self._aged_at > AGE_CHECK:
            close_old_connections()
            self._aged_at = now
        for connection in self._open:
            if connection.errors_occurred or not connection.autocommit:
                connection.close_if_unusable_or_obsolete()
