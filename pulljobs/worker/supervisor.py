"""The supervisor: keeps a child working, takes the blame apart when it dies, passes signals on."""

import logging
import multiprocessing
import pickle
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Final
from uuid import uuid4

from django.db import DatabaseError, InterfaceError, connections

from pulljobs import pulling
from pulljobs.storage import nodes
from pulljobs.worker import boot
from pulljobs.worker.child import LAST_FLUSH, LAST_WORDS, Order
from pulljobs.worker.pool import IDLE, Slot, Slots, slots_of

logger = logging.getLogger("pulljobs.worker")

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
STEADY: Final = 30.0
"""A child that lived so many seconds is started again without a pause."""
MARGIN: Final = 0.3
LOOK: Final = 0.2
KILLED_BY_HAND: Final = 1


class Supervisor:
    """One child at a time. It runs handlers, so it may die; this process doesn't and may not."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._context = multiprocessing.get_context("spawn")
        self._signals = 0
        self._signalled: SimpleQueue[int] = SimpleQueue()
        """Unlike those of an Event, its methods may be called where a signal interrupts them."""
        self._kill_at = float("inf")
        self._child: SpawnProcess | None = None
        self._failures = 0

    def run(self) -> int:
        """Work until stopped, or until a burst is over; the exit code."""
        with self._signals_taken():
            while not self._signals:
                started = time.monotonic()
                code = self._one_child()
                if code == boot.MISCONFIGURED or (code == 0 and self._order.burst):
                    return code
                if not self._signals:
                    self._pause(started)
        return 0 if self._signals < 2 else KILLED_BY_HAND

    def _one_child(self) -> int:
        order = replace(self._order, node_id=uuid4())
        slots = self._context.RawArray(Slot, slots_of(order.limits))
        theirs, ours = self._context.Pipe(duplex=False)
        self._child = self._context.Process(
            target=boot.start, args=(pickle.dumps(order), slots, theirs), name="pulljobs-child"
        )
        self._child.start()
        theirs.close()
        code = self._wait(self._child, ours)
        if code not in (0, boot.MISCONFIGURED):
            self._give_back(order, slots, code)
        return code

    def _wait(self, child: SpawnProcess, pipe: Connection) -> int:
        """The child's exit code; once stopping, no longer than a stop may take."""
        if self._signals:
            self._tell(child)
        while child.exitcode is None:
            child.join(LOOK)
            if child.exitcode is None and time.monotonic() > self._kill_at:
                logger.warning("The child did not stop in time; it is killed.")
                child.kill()
                child.join()
        pipe.close()
        return child.exitcode

    def _give_back(self, order: Order, slots: Slots, code: int) -> None:
        """What the dead child was running is charged; what only waited in it is released.

        A stop charges nothing, not even one that had to kill.
        """
        running = frozenset(id for id in slots if id != IDLE)
        logger.error("The child ended with %d while running %d jobs.", code, len(running))
        try:
            pulling.abandon(order.node_id, frozenset() if self._signals else running)
            nodes.stop(order.limits.DATABASE, order.node_id)
        except (DatabaseError, InterfaceError) as error:
            logger.warning("What it held comes back when its leases are over: %s", error)
        finally:
            connections.close_all()

    def _pause(self, started: float) -> None:
        lived = time.monotonic() - started
        self._failures = 0 if lived > STEADY else self._failures + 1
        if self._failures:
            pause = min(FIRST_PAUSE * 2.0 ** (self._failures - 1), LONGEST_PAUSE)
            with suppress(Empty):
                self._signalled.get(timeout=pause * random.uniform(0.7, 1))

    @contextmanager
    def _signals_taken(self) -> Iterator[None]:
        """The first SIGTERM or SIGINT stops the child, a second one kills it."""
        before = {
            number: signal.signal(number, self._on_signal)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals == 1:
            timeout = self._order.limits.GRACEFUL_TIMEOUT.total_seconds()
            self._kill_at = time.monotonic() + timeout + LAST_WORDS + LAST_FLUSH + MARGIN
        self._signalled.put(number)
        if self._child is not None:
            self._tell(self._child)

    def _tell(self, child: SpawnProcess) -> None:
        if child.pid is None or child.exitcode is not None:
            return
        if self._signals > 1:
            child.kill()
        else:
            child.terminate()
