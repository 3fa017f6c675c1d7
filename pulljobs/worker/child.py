"""One working process: the loops around a pool of threads, and how they start and stop."""

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import SimpleQueue
from types import FrameType
from typing import Final
from uuid import UUID

from django.db import DatabaseError, InterfaceError, connections

from pulljobs import handlers
from pulljobs.conf import Settings
from pulljobs.errors import ConfigurationError
from pulljobs.handlers import ClaimedJob
from pulljobs.models import Consumer
from pulljobs.pulling import Puller
from pulljobs.storage import nodes, statements
from pulljobs.telemetry import LeftBehind, emit
from pulljobs.worker.asyncpool import AsyncPool
from pulljobs.worker.eventloop import EventLoop
from pulljobs.worker.fetcher import Fetcher, Source
from pulljobs.worker.flusher import Flusher
from pulljobs.worker.held import Holdings
from pulljobs.worker.lanes import Lane
from pulljobs.worker.listener import Wakeups
from pulljobs.worker.loop import Runner
from pulljobs.worker.outbox import Outbox
from pulljobs.worker.pool import Pool, Slots
from pulljobs.worker.reaper import Reaper
from pulljobs.worker.running import Ended

logger = logging.getLogger("pulljobs.worker")

LAST_WORDS: Final = 0.2
"""Seconds for async handlers to end that were cancelled."""
LAST_FLUSH: Final = 0.6
"""Seconds for the last flush, inside the second that a stop may take beyond its timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a supervisor tells its child; `only` names channels or channel/consumer, none: all."""

    node_id: UUID
    limits: Settings
    only: tuple[str, ...] = ()
    burst: bool = False


class Child:
    """Built in the working process, after Django is set up."""

    def __init__(self, order: Order, slots: Slots) -> None:
        self._order, self._limits = order, order.limits
        self._asked: SimpleQueue[None] = SimpleQueue()
        self._stopping = threading.Event()
        self._holdings = Holdings(self._limits.MAX_HELD)
        self._outbox = Outbox()
        self._loop = EventLoop()
        threads, seats = self._limits.CONCURRENCY, self._limits.ASYNC_CONCURRENCY
        self._pool = Pool(threads, slots, self._outbox, self._wake)
        self._async_pool = AsyncPool(seats, slots, threads, self._loop, self._outbox, self._wake)
        self._claims = self._make_fetcher()
        self._fetcher = Runner("fetcher", self._claims)
        self._flusher = Runner("flusher", self._make_flusher())
        self._reaper = Runner("reaper", Reaper(self._limits, order.node_id, self._hear))
        self._listener = self._make_listener()

    def run(self) -> None:
        """Work until asked to stop; return when all that could end has ended."""
        using = self._limits.DATABASE
        nodes.register(using, self._order.node_id, f"{socket.gethostname()}:{os.getpid()}")
        self._pool.start()
        self._loop.start()
        connections.close_all()  # This thread only waits from now on.
        for runner in self._runners():
            runner.start()
        self._asked.get()
        self._stopping.set()
        self._end()
        try:
            nodes.stop(using, self._order.node_id)
        except (DatabaseError, InterfaceError) as error:
            logger.warning("Stopped without the database to tell: %s", error)
        connections.close_all()

    def stop(self) -> None:
        """From any thread, and from a signal handler, whatever that interrupts."""
        self._asked.put(None)

    def _end(self) -> None:
        deadline = time.monotonic() + self._limits.GRACEFUL_TIMEOUT.total_seconds()
        # No new claims; one already sent may return, and what it brings is released below.
        self._fetcher.stop()
        self._reaper.stop()
        self._give_back()
        self._fetcher.join(deadline - time.monotonic())
        self._give_back()
        self._pool.end()
        self._flusher.wake()
        # Running handlers get their time while the flusher renews their leases and writes.
        self._pool.join(deadline)
        if not self._async_pool.join(deadline):
            self._async_pool.cancel_all(Ended.STOPPED)
            self._async_pool.join(time.monotonic() + LAST_WORDS)
        running = tuple(run.job.id for run in self._outbox.runs.now())
        self._flush_last()
        if running:
            emit(LeftBehind(running))

    def _give_back(self) -> None:
        self._pool.give_back()
        self._async_pool.give_back()

    def _flush_last(self) -> None:
        deadline = time.monotonic() + LAST_FLUSH
        while self._outbox.said and time.monotonic() < deadline:
            self._flusher.wake()
            time.sleep(0.005)
        self._flusher.stop()
        self._flusher.join(deadline - time.monotonic())

    def _runners(self) -> list[Runner]:
        every = [self._flusher, self._reaper, self._listener, self._fetcher]
        return [runner for runner in every if runner is not None]

    def _make_fetcher(self) -> Fetcher:
        return Fetcher(
            _sources(self._order, self._pool, self._async_pool),
            self._limits,
            self._holdings,
            stopping=self._stopping.is_set,
            on_drained=self.stop if self._order.burst else None,
        )

    def _make_flusher(self) -> Flusher:
        self._outbox.on_said = self._flush_when_many
        return Flusher(self._outbox, self._limits, self._holdings, self._on_flushed)

    def _flush_when_many(self) -> None:
        if len(self._outbox.said) >= self._limits.FLUSH_SIZE:
            self._flusher.wake()

    def _make_listener(self) -> Runner | None:
        using = self._limits.DATABASE
        if statements.behind_pooler(using):
            return None
        return Runner("listener", Wakeups(using, self._hear))

    def _on_flushed(self, jobs: Collection[ClaimedJob]) -> None:
        self._claims.hear({job.handler.place for job in jobs})
        self._wake()  # There is room again, too.

    def _hear(self, consumers: Collection[int] | None = None) -> None:
        if self._claims.hear(consumers):
            self._wake()

    def _wake(self) -> None:
        self._fetcher.wake()


def work(child: Child, supervisor: Connection) -> None:
    """What the child process does from then on, to its exit code."""
    _obey_signals(child.stop)
    threading.Thread(target=_outlive_not, args=(supervisor, child.stop), daemon=True).start()
    child.run()
    # Threads that a handler holds on to must not keep the process.
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _sources(order: Order, pool: Lane, async_pool: Lane) -> list[Source]:
    serving = handlers.serving(order.only)
    rows = handlers.sync_consumers()
    found = [
        Source(
            Puller(order.limits.DATABASE, consumer, node_id=order.node_id),
            handler,
            async_pool if handler.is_async else pool,
        )
        for consumer, handler in zip(rows, handlers.registered(), strict=True)
        if handler in serving and _is_served(consumer)
    ]
    if not found:
        raise ConfigurationError("Every consumer that a handler is for is deleted or of type push.")
    return found


def _is_served(consumer: Consumer) -> bool:
    if consumer.deleted_at is not None:
        logger.warning("Consumer %s is deleted: restore it, or drop its handler.", consumer.name)
        return False
    return consumer.type == Consumer.Type.PULL


def _obey_signals(stop: Callable[[], None]) -> None:
    """SIGTERM stops, however often it comes: systemd sends it to the supervisor and to us.

    To kill at a second one, or to pass on a terminal's SIGINT, is up to the supervisor.
    """

    def on_term(number: int, frame: FrameType | None) -> None:
        stop()

    signal.signal(signal.SIGTERM, on_term)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _outlive_not(supervisor: Connection, stop: Callable[[], None]) -> None:
    """Stop when the supervisor's end of the pipe closes, however it died."""
    try:
        supervisor.recv_bytes()
    except (EOFError, OSError):
        logger.warning("The supervisor is gone; stopping.")
        stop()
