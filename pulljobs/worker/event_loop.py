"""Event loop of a worker process, in a thread of its own, and the tasks that run jobs on it."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from contextvars import Context
from types import CoroutineType, FrameType
from typing import Any, Final, TypeVar
from weakref import WeakSet

from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Settlement
from pulljobs.engine.telemetry import LoopBlocked, emit
from pulljobs.handlers import ClaimedJob
from pulljobs.worker.debounce import Debounce
from pulljobs.worker.executor import outcome_of_cancelled
from pulljobs.worker.result_buffer import ResultBuffer
from pulljobs.worker.runs import NO_SLOT, CancelReason, HandlerRun

logger = logging.getLogger("pulljobs.worker")

T = TypeVar("T")
Work = Coroutine[Any, Any, Settlement | None]
Task = asyncio.Task[Any]

BEAT: Final = 1.0
LOOK: Final = 0.01
CANCEL_GRACE: Final = 5.0
"""Seconds that a cancelled handler gets to end by itself, before its outcome is decided."""


class NotStarted(Exception):
    """Signal from the task of a job that it called no handler, so that the job is released."""


class EventLoop:
    """Event loop in its own thread, on which other threads schedule calls."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="event-loop", daemon=True)
        self.beat = time.monotonic()
        """Last heartbeat on the monotonic clock. A handler that blocks the loop prevents more."""
        self._blocked = Debounce()
        self._is_stopping = False
        self._all_tasks: list[LoopTasks] = []

    def start(self) -> None:
        self._thread.start()
        self.call(self._beat)

    def is_unhealthy(self, patience: float) -> bool:
        """Return True if the thread is dead, or had no heartbeat for `patience` seconds."""
        return not self._thread.is_alive() or time.monotonic() - self.beat > patience

    def register(self, tasks: "LoopTasks") -> None:
        """Register the tasks of a job pool, so that `check` and `give_up` include them."""
        self._all_tasks.append(tasks)

    def check(self, patience: float) -> None:
        """Decide the outcomes of stuck handlers. The watchdog calls this at each of its passes.

        Give up cancelled handlers that do not end, and cancel handlers whose lease is over. If the
        loop had no heartbeat for `patience` seconds, retry and charge the job that blocks it.
        """
        self.give_up(CANCEL_GRACE)
        for tasks in self._all_tasks:
            tasks.cut_off()
        if self._blocked.observe(self.is_unhealthy(patience)):
            self._blame(asyncio.current_task(self._loop))

    def give_up(self, after: float) -> None:
        """Buffer outcomes for handlers that go on `after` seconds after their cancellation."""
        for tasks in self._all_tasks:
            tasks.give_up(after)

    def find_frame(self, job: ClaimedJob) -> FrameType | None:
        """Return the frame at which the handler of a job waits, or None if it does not wait."""
        for tasks in self._all_tasks:
            if (task := tasks.find(job)) is not None:
                return _find_frame(task.get_coro())
        return None

    def _blame(self, task: Task | None) -> None:
        """Charge the job whose task blocks the loop, or those of all handlers if it has no job."""
        owners = [tasks for tasks in self._all_tasks if task in tasks]
        for tasks in owners or self._all_tasks:
            tasks.blame(task)

    def stop(self) -> None:
        """Stop the loop and wait for its thread. Nothing can be called on it afterwards."""
        self._is_stopping = True
        self.call(self._loop.stop)
        self._thread.join()

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Schedule a call of the function on the loop. Any thread may call this."""
        self._loop.call_soon_threadsafe(function, *args)

    def later(self, seconds: float, function: Callable[..., object], *args: Any) -> None:
        """Schedule a call of the function after a time. Only the loop's thread may call this."""
        self._loop.call_later(seconds, function, *args)

    def spawn(
        self, work: Coroutine[Any, Any, T], context: Context | None = None
    ) -> asyncio.Task[T]:
        """Start a task. Only the loop's thread may call this."""
        return self._loop.create_task(work, context=context)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._is_stopping:
            try:
                self._loop.run_forever()
            except (KeyboardInterrupt, SystemExit) as error:
                # asyncio lets them out of tasks. No handler may end the loop of all others.
                name = type(error).__name__
                logger.error("A task on the event loop raised %s; the loop goes on.", name)
        unfinished = asyncio.all_tasks(self._loop)
        for task in unfinished:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*unfinished, return_exceptions=True))
        self._loop.close()

    def _beat(self) -> None:
        self.beat = time.monotonic()
        self._loop.call_later(BEAT, self._beat)


class LoopTasks:
    """Tasks of one job pool on the event loop, one for each running handler."""

    def __init__(self, loop: EventLoop, buffer: ResultBuffer) -> None:
        self._loop, self._buffer = loop, buffer
        self._tasks: dict[ClaimedJob, asyncio.Task[Settlement | None]] = {}
        """Tasks of the jobs that have no outcome yet."""
        self._jobs: dict[Task | None, ClaimedJob] = {}
        """Jobs of all tasks that have not ended."""
        self._cut_off: WeakSet[Task] = WeakSet()
        """Tasks that `cut_off` has cancelled."""
        loop.register(self)

    def __contains__(self, task: Task | None) -> bool:
        return task in self._jobs

    def find(self, job: ClaimedJob) -> Task | None:
        return self._tasks.get(job)

    def start(
        self,
        job: ClaimedJob,
        slot: int,
        work: Work,
        on_end: Callable[[], None],
        context: Context | None = None,
    ) -> None:
        """Start `work`, which runs the handler, and call `on_end` on the loop after its end.

        Only the loop's thread may call this.
        """
        runs = self._buffer.runs
        # The task is noted before the run begins, because a cancellation looks for it.
        task = self._tasks[job] = self._loop.spawn(work, context)
        self._jobs[task] = job
        runs.begin(job, runs.slot(slot, self._on_cancel), time.monotonic())
        task.add_done_callback(lambda task: self._on_done(job, task, on_end))

    def cancel_all(self, reason: CancelReason) -> None:
        """Cancel all handlers. Any thread may call this."""
        for run in self._buffer.runs.current():
            if run.job in self._tasks:
                run.cancel(reason)

    def join(self, deadline: float) -> bool:
        """Wait until all jobs have an outcome. Return False if the deadline comes first.

        The deadline is a time of the monotonic clock. Any other thread may call this.
        """
        while self._tasks and time.monotonic() < deadline:
            time.sleep(LOOK)
        return not self._tasks

    def give_up(self, after: float) -> None:
        """Buffer outcomes for handlers that go on `after` seconds after their cancellation.

        `outcome_of_cancelled` decides the outcome. What such a handler reports later is discarded.
        Any thread may call this.
        """
        for run in self._buffer.runs.current():
            if run.is_stuck(after) and self._tasks.pop(run.job, None) is not None:
                self._buffer.add(run.job, outcome_of_cancelled(run))

    def cut_off(self) -> None:
        """Cancel handlers whose lease is over by this process's clock.

        The database may be out of reach, and another worker may run the jobs. If a handler reports
        an outcome all the same, before or after, it is written, and the database decides whether it
        counts. Otherwise the job is released.
        """
        for job in list(self._tasks):
            task = self._tasks.get(job)
            if job.lost and not job.taken_away and task is not None and task not in self._cut_off:
                self._cut_off.add(task)
                self._loop.call(task.cancel)

    def blame(self, task: Task | None) -> None:
        """Retry and charge the job whose task blocks the loop, or all if the task has no job.

        Push deliveries are not charged. The outcomes are decided at once: no task can react to its
        cancellation now.
        """
        blocking = self._jobs.get(task)
        for run in self._buffer.runs.current():
            is_blamed = run.job in self._tasks and blocking in (None, run.job)
            if is_blamed and run.slot != NO_SLOT and run.cancel(CancelReason.BLOCKED):
                emit(LoopBlocked(run.job.id, *run.job.handler.names, run.seconds))
        self.give_up(0)

    def _on_done(
        self, job: ClaimedJob, task: asyncio.Task[Settlement | None], on_end: Callable[[], None]
    ) -> None:
        del self._jobs[task]
        try:
            # A task whose handler was called ends with an outcome, even if it was cancelled.
            is_started = not (task.cancelled() or isinstance(task.exception(), NotStarted))
            cancelled = self._buffer.runs.end(job, is_started=is_started)
            outcome = _outcome(job, task) if cancelled is None else outcome_of_cancelled(cancelled)
            if self._tasks.pop(job, None) is not None:
                self._buffer.add(job, outcome)
        finally:
            on_end()

    def _on_cancel(self, run: HandlerRun) -> None:
        if (task := self._tasks.get(run.job)) is not None:
            self._loop.call(task.cancel)


def _find_frame(work: Any) -> FrameType | None:
    """Return the frame of the innermost waiting coroutine that is not one of asyncio's own.

    It is None for a coroutine that runs now.
    """
    innermost: FrameType | None = None
    while isinstance(work, CoroutineType) and not work.cr_running:
        frame = work.cr_frame
        if frame is not None and not frame.f_globals["__name__"].startswith("asyncio."):
            innermost = frame
        work = work.cr_await
    return innermost


def _outcome(job: ClaimedJob, task: asyncio.Task[Settlement | None]) -> Settlement | None:
    if task.cancelled():  # The loop ends; the worker did not cancel the run.
        return outcomes.release(job.held)
    error = task.exception()
    if isinstance(error, NotStarted):
        return outcomes.release(job.held)
    if error is not None:
        return outcomes.retry(job.held, type(error).__name__)
    return task.result()
