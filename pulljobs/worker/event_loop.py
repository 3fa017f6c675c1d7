"""The one event loop of a worker process, and the handlers that run on it as tasks."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Final, TypeVar

from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Settlement
from pulljobs.engine.telemetry import LoopBlocked, emit
from pulljobs.handlers import ClaimedJob
from pulljobs.worker.debounce import Steady
from pulljobs.worker.executor import word_for
from pulljobs.worker.result_buffer import Outbox
from pulljobs.worker.runs import NOWHERE, Ended, Run

T = TypeVar("T")
Work = Coroutine[Any, Any, Settlement | None]
Task = asyncio.Task[Any]

BEAT: Final = 1.0
LOOK: Final = 0.01
HEED: Final = 5.0
"""Seconds in which a cancelled handler may end by itself, before its job goes its way."""


class EventLoop:
    """A thread; what is called on the loop may come from any other."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="event-loop", daemon=True)
        self.beat = time.monotonic()
        """When it last turned, on the monotonic clock: a handler that blocks it stops this."""
        self._standing_still = Steady()
        self._all: list[Tasks] = []

    def start(self) -> None:
        self._thread.start()
        self.call(self._beat)

    def is_sick(self, patience: float) -> bool:
        return not self._thread.is_alive() or time.monotonic() - self.beat > patience

    def serve(self, tasks: "Tasks") -> None:
        self._all.append(tasks)

    def mind(self, patience: float) -> None:
        """Say for its handlers what can't wait for it to turn; from the watch, at each look."""
        self.give_up(HEED)
        if self._standing_still.look(self.is_sick(patience)):
            self._blame(asyncio.current_task(self._loop))

    def give_up(self, after: float) -> None:
        """Say the word of its handlers that go on for so long after they were cancelled."""
        for tasks in self._all:
            tasks.give_up(after)

    def _blame(self, task: Task | None) -> None:
        """It may also be one that a handler made, and any of them may have."""
        for tasks in [one for one in self._all if task in one] or self._all:
            tasks.blame(task)

    def stop(self) -> None:
        """Nothing can be called on it any more once it has stopped."""
        self.call(self._loop.stop)
        self._thread.join()

    def call(self, function: Callable[..., object], *args: Any) -> None:
        self._loop.call_soon_threadsafe(function, *args)

    def later(self, seconds: float, function: Callable[..., object], *args: Any) -> None:
        """On the loop only."""
        self._loop.call_later(seconds, function, *args)

    def spawn(
        self, work: Coroutine[Any, Any, T], context: Context | None = None
    ) -> asyncio.Task[T]:
        """On the loop only."""
        return self._loop.create_task(work, context=context)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    def _beat(self) -> None:
        self.beat = time.monotonic()
        self._loop.call_later(BEAT, self._beat)


class Tasks:
    """Handlers that run on the loop."""

    def __init__(self, loop: EventLoop, outbox: Outbox) -> None:
        self._loop, self._outbox = loop, outbox
        self._tasks: dict[ClaimedJob, asyncio.Task[Settlement | None]] = {}
        """Those whose word is still to come."""
        self._jobs: dict[Task | None, ClaimedJob] = {}
        """Of all tasks that have not ended."""
        loop.serve(self)

    def __contains__(self, task: Task | None) -> bool:
        return task in self._jobs

    def start(
        self,
        job: ClaimedJob,
        slot: int,
        work: Work,
        on_end: Callable[[], None],
        context: Context | None = None,
    ) -> None:
        """On the loop only; `on_end` is called there once the work has ended."""
        runs = self._outbox.runs
        # Before the run begins: who cancels that looks for it.
        task = self._tasks[job] = self._loop.spawn(work, context)
        self._jobs[task] = job
        runs.begin(job, runs.slot(slot, self._on_cancel), time.monotonic())
        task.add_done_callback(lambda task: self._on_done(job, task, on_end))

    def cancel_all(self, why: Ended) -> None:
        """From any thread."""
        for run in self._outbox.runs.now():
            if run.job in self._tasks:
                run.cancel(why)

    def join(self, deadline: float) -> bool:
        """Whether all have ended before that monotonic time; from any other thread."""
        while self._tasks and time.monotonic() < deadline:
            time.sleep(LOOK)
        return not self._tasks

    def give_up(self, after: float) -> None:
        """Say the word of those that go on for so long after they were cancelled; from any thread.

        What they say later is too late.
        """
        for run in self._outbox.runs.now():
            if run.is_stuck(after) and self._tasks.pop(run.job, None) is not None:
                self._outbox.say(run.job, word_for(run))

    def blame(self, task: Task | None) -> None:
        """Charge who blocks the loop, all if that is not known; nobody will heed anything now."""
        blocking = self._jobs.get(task)
        for run in self._outbox.runs.now():
            is_meant = run.job in self._tasks and blocking in (None, run.job)
            if is_meant and run.slot != NOWHERE and run.cancel(Ended.BLOCKED):
                emit(LoopBlocked(run.job.id, *run.job.handler.path, run.seconds))
        self.give_up(0)

    def _on_done(
        self, job: ClaimedJob, task: asyncio.Task[Settlement | None], on_end: Callable[[], None]
    ) -> None:
        del self._jobs[task]
        try:
            cancelled = self._outbox.runs.end(job)
            word = _word(job, task) if cancelled is None else word_for(cancelled)
            if self._tasks.pop(job, None) is not None:
                self._outbox.say(job, word)
        finally:
            on_end()

    def _on_cancel(self, run: Run) -> None:
        if (task := self._tasks.get(run.job)) is not None:
            self._loop.call(task.cancel)


def _word(job: ClaimedJob, task: asyncio.Task[Settlement | None]) -> Settlement | None:
    if task.cancelled():  # not by us: its own loop is at its end
        return outcomes.release(job.held)
    if (error := task.exception()) is not None:
        return outcomes.retry(job.held, type(error).__name__)
    return task.result()
