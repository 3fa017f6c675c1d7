"""One working process: the loops around a pool of threads, and how they start and stop."""

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from multiprocessing.connection import Connection
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Final
from uuid import UUID

from django.db import DatabaseError, InterfaceError, connections

from pulljobs.conf import Settings
from pulljobs.engine.telemetry import LeftBehind, emit
from pulljobs.handlers import ClaimedJob
from pulljobs.storage import nodes, statements
from pulljobs.worker import boot
from pulljobs.worker.async_pool import AsyncPool
from pulljobs.worker.circuits import Breakers
from pulljobs.worker.event_loop import EventLoop
from pulljobs.worker.fetcher import Fetcher
from pulljobs.worker.flusher import Flusher
from pulljobs.worker.give_up_hooks import Farewells
from pulljobs.worker.in_flight import Holdings
from pulljobs.worker.listener import Wakeups
from pulljobs.worker.loop import JITTER, Runner
from pulljobs.worker.reaper import Reaper
from pulljobs.worker.report import Report, lines, report
from pulljobs.worker.result_buffer import Outbox
from pulljobs.worker.runs import Ended, Run
from pulljobs.worker.shared_state import Board
from pulljobs.worker.subscriptions import Roster, can_push
from pulljobs.worker.thread_pool import Pool
from pulljobs.worker.watchdog import Sign, Watch

if TYPE_CHECKING:
    from pulljobs.worker.push_delivery import Pushing, PushLane

logger = logging.getLogger("pulljobs.worker")

LONGEST_SPREAD: Final = 1.0
LAST_WORDS: Final = 0.2
"""Seconds for async handlers to end that were cancelled; then their jobs are given back anyway."""
LAST_FLUSH: Final = 0.6
"""Seconds for the last flush, inside the second that a stop may take beyond its timeout."""
EARLY_FLUSH: Final = 5.0
"""Of what is left of the timeout it may take so many more, where the database is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a supervisor tells its child."""

    node_id: UUID
    limits: Settings


class Ask(Enum):
    """What the main thread of a child waits for."""

    STOP = "stop"
    RETIRE = "retire"
    REPORT = "report"


class Child:
    """Built in the working process, after Django is set up."""

    def __init__(self, order: Order, board: Board) -> None:
        self._order, self._limits, self._board = order, order.limits, board
        self._asked: SimpleQueue[Ask] = SimpleQueue()
        self._stopping = threading.Event()
        self._holdings = Holdings(self._limits.MAX_HELD)
        self._breakers = Breakers(self._limits)
        self._outbox = Outbox()
        self._farewells = Farewells()
        self._loop = EventLoop()
        threads, seats, slots = (
            self._limits.CONCURRENCY,
            self._limits.ASYNC_CONCURRENCY,
            board.slots,
        )
        self._pool = Pool(threads, slots, self._outbox, self._wake)
        self._async_pool = AsyncPool(seats, slots, threads, self._loop, self._outbox, self._wake)
        self._pushing = self._make_pushing()
        self._on_loop = [one for one in (self._async_pool, self._pushing) if one is not None]
        self._claims = self._make_fetcher()
        self._fetcher = Runner("fetcher", self._claims, spread=self._spread())
        self._writes = self._make_flusher()
        self._flusher = Runner("flusher", self._writes)
        self._outbox.tell_of(self._limits.FLUSH_SIZE, self._flusher.wake)
        self._reaper = Runner("reaper", self._make_reaper())
        self._listener = self._make_listener()
        self._watch = Runner("watch", self._make_watch())

    def run(self) -> int:
        """Work until asked to stop; the exit code, when all that could end has ended."""
        using = self._limits.DATABASE
        nodes.register(using, self._order.node_id, f"{socket.gethostname()}:{os.getpid()}")
        self._pool.start()
        self._loop.start()
        connections.close_all()  # This thread only waits from now on.
        for runner in self._runners():
            runner.start()
        while (asked := self._asked.get()) is Ask.REPORT:
            self._log_report()
        self._stopping.set()
        self._end()
        try:
            nodes.stop(using, self._order.node_id)
        except (DatabaseError, InterfaceError) as error:
            logger.warning("Stopped without the database to tell: %s", error)
        connections.close_all()
        return boot.RETIRED if asked is Ask.RETIRE else 0

    def ask(self, what: Ask) -> None:
        """From any thread, and from a signal handler, whatever that interrupts."""
        self._asked.put(what)

    def stop(self) -> None:
        self.ask(Ask.STOP)

    def _retire(self, reason: str) -> None:
        logger.warning("This process ends for another to take its place: %s.", reason)
        self.ask(Ask.RETIRE)

    def _log_report(self) -> None:
        running = self._outbox.runs.now()
        for line in lines(self._report(running), running):
            logger.warning("%s", line)

    def _report(self, running: Sequence[Run] | None = None) -> Report:
        return report(
            [runner for runner in self._runners() if not runner.is_stopping],
            self._outbox.runs.now() if running is None else running,
            self._breakers.report(),
            () if self._stopping.is_set() else self._claims.places(),
            held=len(self._holdings),
            unwritten=len(self._outbox.said),
            done=self._done(),
        )

    def _done(self) -> int:
        return self._pool.done + self._async_pool.done

    def _spread(self) -> float:
        """Seconds; so that those who are started together don't poll together."""
        if self._limits.BURST or self._limits.ONCE:
            return 0.0
        return min(JITTER * self._limits.MAX_FETCH_INTERVAL.total_seconds(), LONGEST_SPREAD)

    def _end(self) -> None:
        deadline = time.monotonic() + self._limits.GRACEFUL_TIMEOUT.total_seconds()
        # No new claims; one already sent may return, and what it brings is released below.
        self._fetcher.stop()
        self._give_back()
        self._fetcher.join(deadline - time.monotonic())
        self._give_back()
        self._pool.end()
        self._flusher.wake()
        # Running handlers get their time while the flusher renews their leases and writes.
        self._pool.join(deadline)
        if not all(lane.join(deadline) for lane in self._on_loop):
            self._cancel_tasks()
        running = tuple(run.job.id for run in self._outbox.runs.now() if run.ended is None)
        self._writes.leave()
        self._flush_last(deadline)
        self._farewells.end(deadline + LAST_FLUSH)
        self._reaper.stop()  # Its heartbeats say until now that this process is not gone.
        self._reaper.join(LAST_WORDS)
        if running:
            emit(LeftBehind(running))

    def _cancel_tasks(self) -> None:
        for lane in self._on_loop:
            lane.cancel_all(Ended.STOPPED)
        last = time.monotonic() + LAST_WORDS
        for lane in self._on_loop:
            lane.join(last)
        self._loop.give_up(0)

    def _give_back(self) -> None:
        self._claims.give_back()
        for lane in (self._pool, *self._on_loop):
            lane.give_back()

    def _flush_last(self, stop_by: float) -> None:
        now = time.monotonic()
        deadline = max(now, min(stop_by, now + EARLY_FLUSH)) + LAST_FLUSH
        while (self._outbox.said or self._writes.is_leaving) and time.monotonic() < deadline:
            self._flusher.wake()
            time.sleep(0.005)
        self._flusher.stop()
        self._flusher.join(deadline - time.monotonic())

    def _runners(self) -> list[Runner]:
        every = [self._flusher, self._reaper, self._listener, self._watch, self._fetcher]
        return [runner for runner in every if runner is not None]

    def _make_fetcher(self) -> Fetcher:
        return Fetcher(
            self._make_roster().sources,
            self._limits,
            self._holdings,
            self._outbox,
            self._breakers,
            node_id=self._order.node_id,
            stopping=self._stopping.is_set,
            on_drained=self.stop if self._limits.BURST or self._limits.ONCE else None,
        )

    def _make_roster(self) -> Roster:
        return Roster(
            self._limits,
            self._order.node_id,
            threads=self._pool,
            tasks=self._async_pool,
            pushing=self._pushing,
        )

    def _make_pushing(self) -> "Pushing | None":
        if not (self._limits.PUSH and can_push()):
            return None
        from pulljobs.worker.push_delivery import Pushing

        return Pushing(self._limits, self._loop, self._outbox, self._hear_of_room)

    def _make_flusher(self) -> Flusher:
        return Flusher(
            self._outbox, self._limits, self._holdings, self._on_flushed, self._farewells.say
        )

    def _make_reaper(self) -> Reaper:
        limits, node_id = self._limits, self._order.node_id
        return Reaper(limits, node_id, self._hear, self._report, self._board.reach)

    def _make_watch(self) -> Watch:
        runners = [self._flusher, self._reaper, self._listener, self._fetcher]
        signs: list[Sign] = [self._loop, *(runner for runner in runners if runner is not None)]
        runs = self._outbox.runs
        return Watch(self._limits, self._board, runs, signs, self._mind, self._done, self._retire)

    def _mind(self, patience: float) -> None:
        self._loop.mind(patience)
        self._pool.mind()

    def _make_listener(self) -> Runner | None:
        using = self._limits.DATABASE
        if statements.behind_pooler(using):
            return None
        return Runner("listener", Wakeups(using, self._hear, self._doubt))

    def _doubt(self, job_ids: Collection[int]) -> None:
        self._holdings.doubt(job_ids)
        self._flusher.wake()

    def _on_flushed(self, settled: Collection[ClaimedJob], back: Collection[ClaimedJob]) -> None:
        self._claims.hear_of(settled, back)
        self._wake()  # There is room again, too.

    def _hear_of_room(self, lane: "PushLane") -> None:
        self._claims.hear_of_room(lane)
        self._wake()

    def _hear(self, consumers: Collection[int] | None = None) -> None:
        if self._claims.hear(consumers):
            self._wake()

    def _wake(self) -> None:
        self._fetcher.wake()


def work(child: Child, board: Board, supervisor: Connection) -> None:
    """What the child process does from then on, to its exit code."""
    _obey_signals(child.ask)
    threading.Thread(target=_outlive_not, args=(supervisor, child.stop), daemon=True).start()
    code = child.run()
    board.leave()  # Before what fails where nobody reads what it prints.
    # Threads that a handler holds on to must not keep the process.
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _obey_signals(ask: Callable[[Ask], None]) -> None:
    """SIGTERM stops, however often it comes: systemd sends it to the supervisor and to us.

    To kill at a second one, or to pass on a terminal's SIGINT, is up to the supervisor.
    """

    def obey(number: int, frame: FrameType | None) -> None:
        ask(Ask.STOP if number == signal.SIGTERM else Ask.REPORT)

    signal.signal(signal.SIGTERM, obey)
    signal.signal(signal.SIGUSR1, obey)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _outlive_not(supervisor: Connection, stop: Callable[[], None]) -> None:
    """Stop when the supervisor's end of the pipe closes, however it died."""
    try:
        supervisor.recv_bytes()
    except (EOFError, OSError):
        logger.warning("The supervisor is gone; stopping.")
        stop()
