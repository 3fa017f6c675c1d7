"""Handle by which a supervisor starts, watches and stops a child process."""

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
from pulljobs.worker.shared_state import LAST_FLUSH, ChildOrder, SharedState
from pulljobs.worker.thread_pool import slot_count

MARGIN: Final = 0.3
MISSED_BEATS: Final = 3
SILENT_SECONDS: Final = 0.6
"""Seconds without a pass of the watchdog after which no other loop of a child is likely to run."""


def stop_seconds(limits: Settings) -> float:
    """Return the seconds from a stop signal to the time when a child is late and is killed."""
    return limits.GRACEFUL_TIMEOUT.total_seconds() + LAST_FLUSH + MARGIN


class ChildProcess:
    """Child process, started by the constructor.

    Signal handlers may call `stop`, `kill` and `request_report`.
    """

    def __init__(self, context: SpawnContext, limits: Settings, slot_number: int) -> None:
        self._counts_as = f"child-{slot_number}" if limits.METRICS else None
        self.order = ChildOrder(node_id=uuid4(), limits=limits)
        self.shared_state = SharedState.allocate(context, slot_count(limits))
        self.began_at = time.monotonic()
        self._stop_by = float("inf")
        self.was_unhealthy = self.is_killed = False
        theirs, self._pipe = context.Pipe(duplex=False)
        self._process = context.Process(
            target=boot.start,
            args=(pickle.dumps(self.order), self.shared_state, theirs, self._counts_as),
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
        """Exit code, or None while the process lives."""
        return self._process.exitcode

    @property
    def is_stopping(self) -> bool:
        return self._stop_by < float("inf")

    @property
    def is_late(self) -> bool:
        """True if the time has passed by which `stop` asked the child to end."""
        return time.monotonic() > self._stop_by

    @property
    def is_unhealthy(self) -> bool:
        tolerance = self.order.limits.LIVENESS_TIMEOUT.total_seconds()
        return self.shared_state.is_unhealthy(self.began_at, tolerance)

    @property
    def is_silent(self) -> bool:
        """True if the watchdog has not run for `SILENT_SECONDS`: a handler may keep the GIL."""
        return self.shared_state.is_silent(SILENT_SECONDS)

    @property
    def is_ready(self) -> bool:
        """True if the heartbeats of the child reach the database."""
        interval = self.order.limits.HEARTBEAT_INTERVAL.total_seconds()
        return self.shared_state.is_ready(MISSED_BEATS * interval)

    def stop(self, by: float) -> None:
        """Send SIGTERM. The child is late after the time `by` of the monotonic clock."""
        self._stop_by = min(self._stop_by, by)
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.is_killed = True
        self._signal(signal.SIGKILL)

    def request_report(self) -> None:
        """Have the child log what its loops and slots are doing."""
        if self.shared_state.has_begun:  # Earlier, the signal would end the child.
            self._signal(signal.SIGUSR1)

    def close(self) -> None:
        """Release the resources of a child that has ended."""
        self._process.join()
        self._pipe.close()
        if self._counts_as is not None:
            sharing.leave(self._counts_as)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # The child may end just before the signal.
            if self.pid and self.exit_code is None:
                os.kill(self.pid, number)
