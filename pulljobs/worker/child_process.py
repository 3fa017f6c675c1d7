"""A child as its supervisor sees it."""

import os
import pickle
import signal
import time
from contextlib import suppress
from multiprocessing.context import SpawnContext
from typing import Final
from uuid import uuid4

from pulljobs.conf import Settings
from pulljobs.metrics import sharing
from pulljobs.worker import boot
from pulljobs.worker.child import LAST_FLUSH, Order
from pulljobs.worker.shared_state import Board
from pulljobs.worker.thread_pool import slots_of

MARGIN: Final = 0.3
MISSED_BEATS: Final = 3


def patience(limits: Settings) -> float:
    """Seconds that a stop may take."""
    return limits.GRACEFUL_TIMEOUT.total_seconds() + LAST_FLUSH + MARGIN


class ChildProcess:
    """Started when it is made. `stop`, `kill` and `ask` may be called by signal handlers."""

    def __init__(self, context: SpawnContext, limits: Settings, post: int) -> None:
        self._counts_as = f"child-{post}" if limits.METRICS else None
        self.order = Order(node_id=uuid4(), limits=limits)
        self.board = Board.shared(context, slots_of(limits))
        self.began_at = time.monotonic()
        self._stop_by = float("inf")
        self.was_sick = False
        theirs, self._pipe = context.Pipe(duplex=False)
        self._process = context.Process(
            target=boot.start,
            args=(pickle.dumps(self.order), self.board, theirs, self._counts_as),
            name="pulljobs-child",
        )
        self._process.start()
        theirs.close()
        self.sentinel = self._process.sentinel

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode

    @property
    def is_stopping(self) -> bool:
        return self._stop_by < float("inf")

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self._stop_by

    @property
    def is_sick(self) -> bool:
        tolerance = self.order.limits.LIVENESS_TIMEOUT.total_seconds()
        return self.board.is_sick(self.began_at, tolerance)

    @property
    def is_ready(self) -> bool:
        """Whether its heartbeats reach the database."""
        interval = self.order.limits.HEARTBEAT_INTERVAL.total_seconds()
        return self.board.is_ready(MISSED_BEATS * interval)

    def stop(self, by: float) -> None:
        """By that monotonic time."""
        self._stop_by = min(self._stop_by, by)
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def ask(self) -> None:
        """What it is doing; the answer goes to its log."""
        if self.board.has_begun:  # Before that the signal would end it.
            self._signal(signal.SIGUSR1)

    def close(self) -> None:
        self._process.join()
        self._pipe.close()
        if self._counts_as is not None:
            sharing.leave(self._counts_as)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # It may end between the two.
            if self.pid and self.exit_code is None:
                os.kill(self.pid, number)
