"""Child process of a worker: its loops and job pools, and how they start and stop."""

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import partial
from multiprocessing.connection import Connection
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Final

from django.db import DatabaseError, InterfaceError, connections

from pulljobs import hooks, pulling
from pulljobs.engine.telemetry import LeftBehind, describe_error, emit
from pulljobs.handlers import ClaimedJob
from pulljobs.hooks import WorkerLoop
from pulljobs.loops import JITTER, Runner
from pulljobs.storage import nodes, sessions
from pulljobs.worker.async_pool import AsyncPool
from pulljobs.worker.circuits import Circuits
from pulljobs.worker.event_loop import EventLoop
from pulljobs.worker.fetcher import Fetcher
from pulljobs.worker.flusher import Flusher
from pulljobs.worker.give_up_hooks import GiveUpHooks
from pulljobs.worker.in_flight import InFlightJobs
from pulljobs.worker.listener import WakeupListener
from pulljobs.worker.reaper import Reaper
from pulljobs.worker.renewer import Renewer
from pulljobs.worker.report import Report, build_report, format_report
from pulljobs.worker.result_buffer import ResultBuffer
from pulljobs.worker.runs import CancelReason, HandlerRun
from pulljobs.worker.shared_state import LAST_FLUSH, RETIRED, ChildOrder, SharedState
from pulljobs.worker.subscriptions import Subscriptions, can_deliver
from pulljobs.worker.thread_pool import ThreadPool
from pulljobs.worker.watchdog import HealthSign, Watchdog

if TYPE_CHECKING:
    from pulljobs.worker.push_delivery import PushDelivery, PushPool

logger = logging.getLogger("pulljobs.worker")

LONGEST_SPREAD: Final = 1.0
CANCEL_PATIENCE: Final = 0.2
"""Seconds that cancelled async handlers get to end before their jobs are released anyway."""
EARLY_FLUSH: Final = 5.0
"""Seconds that the last flush may take beyond `LAST_FLUSH`, if the timeout leaves that much."""
NO_THREAD: Final = "can't start new thread"
"""Text of Python's error if the system has no room for another thread."""


class ChildCommand(Enum):
    """Command that the main thread of a child waits for."""

    STOP = "stop"
    RETIRE = "retire"
    REPORT = "report"


class Child:
    """Loops, job pools and buffers of one child process, made after Django is set up."""

    def __init__(self, order: ChildOrder, shared_state: SharedState) -> None:
        self._order, self._limits, self._shared_state = order, order.limits, shared_state
        self._commands: SimpleQueue[ChildCommand] = SimpleQueue()
        self._stopping = threading.Event()
        self._in_flight = InFlightJobs(self._limits.MAX_HELD, self._limits.MAX_HELD_BYTES)
        self._circuits = Circuits(self._limits)
        self._buffer = ResultBuffer()
        self._give_up_hooks = GiveUpHooks()
        self._loop = EventLoop()
        self._thread_pool = self._make_thread_pool()
        self._async_pool = self._make_async_pool()
        self._push_delivery = self._make_push_delivery()
        self._loop_pools = [
            pool for pool in (self._async_pool, self._push_delivery) if pool is not None
        ]
        self._subscriptions = self._make_subscriptions()
        self._fetcher = self._make_fetcher()
        self._fetcher_runner = Runner(
            "fetcher", self._fetcher, spread=self._spread_seconds(), prepare=self._fetcher.prepare
        )
        watch = self._subscriptions.watch()
        self._watch_runners = [] if watch is None else [Runner("subscriptions", watch)]
        self._renewer = Renewer(self._in_flight, self._buffer.runs)
        self._renewer_runner = Runner("renewer", self._renewer)
        self._flusher = self._make_flusher()
        self._flusher_runner = Runner("flusher", self._flusher, prepare=pulling.prepare_to_finish)
        self._buffer.notify_at(self._limits.FLUSH_SIZE, self._flusher_runner.wake)
        self._reaper_runner = Runner("reaper", self._make_reaper())
        self._hooked_loops: dict[str, WorkerLoop] = {
            name: hooks.load(loop)() for name, loop in hooks.worker_loops.items()
        }
        self._hooked_runners = {
            name: Runner(name, loop) for name, loop in self._hooked_loops.items()
        }
        self._added_report = {name: hooks.load(part)() for name, part in hooks.node_reports.items()}
        for name in self._hooked_loops:
            hooks.loop_wakers[name] = partial(self._wake_hooked, name)
        hooks.fetch_wakers[:] = [self._on_work]
        self._listener_runner = self._make_listener()
        self._watchdog_runner = Runner("watchdog", self._make_watchdog())

    def register(self) -> None:
        """Create the node row of this process."""
        name = self._limits.WORKER_ID or socket.gethostname()
        nodes.register(self._limits.DATABASE, self._order.node_id, f"{name}:{os.getpid()}")

    def run(self) -> int:
        """Work until a command to stop or retire, then stop. Return the exit code."""
        self._thread_pool.start()
        self._loop.start()
        connections.close_all()  # This thread only waits from now on.
        for runner in self._runners():
            runner.start()
        while (command := self._commands.get()) is ChildCommand.REPORT:
            self._log_report()
        self._stopping.set()
        self._end()
        try:
            nodes.stop(self._limits.DATABASE, self._order.node_id)
        except (DatabaseError, InterfaceError) as error:
            logger.warning("The node row can't be marked as stopped: %s", describe_error(error))
        connections.close_all()
        return RETIRED if command is ChildCommand.RETIRE else 0

    def send(self, command: ChildCommand) -> None:
        """Send a command to the main thread. Any thread or signal handler may call this."""
        self._commands.put(command)

    def stop(self) -> None:
        self.send(ChildCommand.STOP)

    def _retire(self, reason: str) -> None:
        logger.warning("This process will be replaced by a new one: %s.", reason)
        self.send(ChildCommand.RETIRE)

    def _log_report(self) -> None:
        running = self._buffer.runs.current()
        for line in format_report(self._report(running), running, self._loop.find_frame):
            logger.warning("%s", line)

    def _report(self, running: Sequence[HandlerRun] | None = None) -> Report:
        return build_report(
            [runner for runner in self._runners() if not runner.is_stopping],
            self._buffer.runs.current() if running is None else running,
            self._circuits.report(),
            () if self._stopping.is_set() else self._fetcher.consumer_paths(),
            self._added_report,
            held=len(self._in_flight),
            unwritten=len(self._buffer.results),
            done=self._count_done(),
        )

    def _count_done(self) -> int:
        return self._thread_pool.done + self._async_pool.done

    def _spread_seconds(self) -> float:
        """Return the longest random delay before the first claim: 0 with BURST, ONCE or one child.

        The delay keeps children of one supervisor from claiming at the same moment.
        """
        if self._limits.BURST or self._limits.ONCE or self._limits.PROCESSES == 1:
            return 0.0
        return min(JITTER * self._limits.MAX_FETCH_INTERVAL.total_seconds(), LONGEST_SPREAD)

    def _end(self) -> None:
        deadline = time.monotonic() + self._limits.GRACEFUL_TIMEOUT.total_seconds()
        # No new claims. A claim that is already sent may return, and its jobs are released below.
        self._fetcher_runner.stop()
        hooks.fetch_wakers.clear()
        for runner in self._watch_runners:
            runner.stop()
        for name, runner in self._hooked_runners.items():
            hooks.loop_wakers.pop(name, None)
            runner.stop()
        self._release_waiting()
        self._fetcher_runner.join(deadline - time.monotonic())
        self._release_waiting()
        self._thread_pool.end()
        self._flusher_runner.wake()
        # Running handlers get their time, while their leases are renewed and outcomes are written.
        self._thread_pool.join(deadline)
        if not all(pool.join(deadline) for pool in self._loop_pools):
            self._cancel_tasks()
        self._renewer.stop_charging(self._running_ids())
        self._flush_last(deadline)
        self._call_endings()
        self._give_up_hooks.end(deadline + LAST_FLUSH)
        # Until now its heartbeats showed that this process is alive.
        self._reaper_runner.stop()
        hooked = self._hooked_runners.values()
        for runner in (self._reaper_runner, *self._watch_runners, *hooked):
            runner.join(CANCEL_PATIENCE)
        if left := self._in_flight.job_ids():
            emit(LeftBehind(left))

    def _cancel_tasks(self) -> None:
        for pool in self._loop_pools:
            pool.cancel_all(CancelReason.STOPPED)
        last = time.monotonic() + CANCEL_PATIENCE
        for pool in self._loop_pools:
            pool.join(last)
        self._loop.give_up(0)

    def _release_waiting(self) -> None:
        self._fetcher.release_waiting()
        for pool in (self._thread_pool, *self._loop_pools):
            pool.release_waiting()

    def _running_ids(self) -> list[int]:
        """Return the ids of the jobs whose handlers go on and were not cancelled."""
        return [run.job.id for run in self._buffer.runs.current() if run.cancel_reason is None]

    def _flush_last(self, stop_by: float) -> None:
        """Wait until only jobs whose handlers go on are in flight, then stop flusher and renewer.

        Wait for the renewal of `stop_charging`, too, but not much longer than until `stop_by`.
        """
        now = time.monotonic()
        deadline = max(now, min(stop_by, now + EARLY_FLUSH)) + LAST_FLUSH
        self._flusher.retry_locked()
        while (
            len(self._in_flight) > len(self._running_ids()) or self._renewer.has_to_stop_charging
        ) and time.monotonic() < deadline:
            self._flusher_runner.wake()
            self._renewer_runner.wake()
            time.sleep(0.005)
        for runner in (self._flusher_runner, self._renewer_runner):
            runner.stop()
        for runner in (self._flusher_runner, self._renewer_runner):
            runner.join(deadline - time.monotonic())

    def _call_endings(self) -> None:
        """Call the functions that other apps have added to `hooks.worker_endings`."""
        for ending in hooks.worker_endings:
            try:
                hooks.load(ending)(self._limits.DATABASE)
            except (DatabaseError, InterfaceError) as error:
                logger.warning("%s is left to another worker: %s", ending, describe_error(error))

    def _runners(self) -> list[Runner]:
        return [self._watchdog_runner, *self._watched_runners()]

    def _watched_runners(self) -> list[Runner]:
        runners = [
            self._renewer_runner,
            self._flusher_runner,
            self._reaper_runner,
            self._listener_runner,
            self._fetcher_runner,
            *self._watch_runners,
            *self._hooked_runners.values(),
        ]
        return [runner for runner in runners if runner is not None]

    def _make_thread_pool(self) -> ThreadPool:
        slots = self._shared_state.slots
        return ThreadPool(self._limits.CONCURRENCY, slots, self._buffer, self._wake_fetcher)

    def _make_async_pool(self) -> AsyncPool:
        return AsyncPool(
            self._limits.ASYNC_CONCURRENCY,
            self._shared_state.slots,
            self._limits.CONCURRENCY,
            self._loop,
            self._buffer,
            self._wake_fetcher,
        )

    def _make_push_delivery(self) -> "PushDelivery | None":
        if not (self._limits.PUSH and can_deliver()):
            return None
        from pulljobs.worker.push_delivery import PushDelivery

        return PushDelivery(self._limits, self._loop, self._buffer, self._on_room)

    def _make_fetcher(self) -> Fetcher:
        return Fetcher(
            self._subscriptions.current,
            self._limits,
            self._in_flight,
            self._buffer,
            self._circuits,
            node_id=self._order.node_id,
            stopping=self._stopping.is_set,
            on_drained=self.stop if self._limits.BURST or self._limits.ONCE else None,
        )

    def _make_subscriptions(self) -> Subscriptions:
        return Subscriptions(
            self._limits,
            self._order.node_id,
            threads=self._thread_pool,
            tasks=self._async_pool,
            push_delivery=self._push_delivery,
        )

    def _make_flusher(self) -> Flusher:
        return Flusher(
            self._buffer,
            self._limits,
            self._in_flight,
            self._on_flushed,
            self._give_up_hooks.submit,
        )

    def _make_reaper(self) -> Reaper:
        return Reaper(
            self._limits,
            self._order.node_id,
            self._on_work,
            self._report,
            self._shared_state.note_reached,
        )

    def _make_watchdog(self) -> Watchdog:
        signs: list[HealthSign] = [self._loop, self._thread_pool, *self._watched_runners()]
        return Watchdog(
            self._limits,
            self._shared_state,
            self._buffer.runs,
            signs,
            self._check_pools,
            self._count_done,
            self._retire,
        )

    def _check_pools(self, patience: float) -> None:
        self._loop.check(patience)
        self._thread_pool.check()

    def _make_listener(self) -> Runner | None:
        using = self._limits.DATABASE
        if sessions.behind_pooler(using):
            return None
        wakers = {
            loop.wake_channel: partial(self._wake_hooked, name)
            for name, loop in self._hooked_loops.items()
        }
        listener = WakeupListener(using, self._on_work, self._request_renewal, wakers)
        return Runner("listener", listener)

    def _wake_hooked(self, name: str) -> None:
        self._hooked_loops[name].wake()
        self._hooked_runners[name].wake()

    def _request_renewal(self, job_ids: Collection[int]) -> None:
        self._in_flight.request_renewal(job_ids)
        self._renewer_runner.wake()

    def _on_flushed(self, settled: Collection[ClaimedJob], back: Collection[ClaimedJob]) -> None:
        self._fetcher.rotation.note_flushed(settled, back)
        self._wake_fetcher()  # Settled jobs have left room, too.

    def _on_room(self, pool: "PushPool") -> None:
        self._fetcher.rotation.note_room(pool)
        self._wake_fetcher()

    def _on_work(self, consumers: Collection[int] | None = None) -> None:
        if self._fetcher.rotation.note_work(consumers):
            self._wake_fetcher()

    def _wake_fetcher(self) -> None:
        self._fetcher_runner.wake()


def work(child: Child, shared_state: SharedState, supervisor: Connection) -> None:
    """Run the child and end its process with the exit code."""
    _handle_signals(child.send)
    watch = threading.Thread(
        target=_stop_with_supervisor, args=(supervisor, child.stop), daemon=True
    )
    with _explaining_threads():
        watch.start()
        code = child.run()
    shared_state.leave()  # Before anything that can fail now that the log may be closed.
    try:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:  # Neither a closed log nor threads that are stuck in a handler change how it ends.
        os._exit(code)


@contextmanager
def _explaining_threads() -> Iterator[None]:
    """Log what to do and end the process if the block may start no thread."""
    try:
        yield
    except RuntimeError as error:
        if str(error) != NO_THREAD:
            raise
        logger.error(
            "The system starts no more threads, and this process will be replaced: raise the limit "
            "of its container or service (such as pids or TasksMax), or give it more memory."
        )
        os._exit(1)


def _handle_signals(send: Callable[[ChildCommand], None]) -> None:
    """Install the signal handlers of a child: SIGTERM stops it, and SIGUSR1 logs a report.

    A second SIGTERM has no effect, because systemd sends each to all processes of the service.
    The child ignores SIGINT and SIGHUP of a terminal: the supervisor gets them, and stops it.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        send(ChildCommand.STOP if number == signal.SIGTERM else ChildCommand.REPORT)

    def leave_to_supervisor(number: int, frame: FrameType | None) -> None:
        """Ignore SIGHUP in this process, but not in the commands that handlers start."""

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGUSR1, handle)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, leave_to_supervisor)


def _stop_with_supervisor(supervisor: Connection, stop: Callable[[], None]) -> None:
    """Wait until the supervisor ends, which closes its end of the pipe, and call `stop` then."""
    try:
        supervisor.recv_bytes()
    except (EOFError, OSError):
        logger.warning("The supervisor has ended: this process stops.")
        stop()
