"""Child slots of a supervisor: in each slot, child processes run one after another."""

import logging
import random
import signal
import time
from collections.abc import Callable
from multiprocessing.context import SpawnContext
from typing import Final
from uuid import UUID

from pulljobs.conf import Settings
from pulljobs.engine.telemetry import LoopFailed, emit
from pulljobs.worker.child_process import ChildProcess, stop_seconds
from pulljobs.worker.debounce import Debounce
from pulljobs.worker.lease_recovery import DeadChild
from pulljobs.worker.shared_state import MISCONFIGURED, RETIRED

logger = logging.getLogger("pulljobs.worker")

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
SILENCE_EVERY: Final = 2.0
"""Seconds between two reports of the jobs that run in a silent child."""
STABLE: Final = 30.0
"""Seconds of life after which a child that ends is replaced without a pause."""


class ChildSlot:
    """Slot for one child at a time. `exit_code` is None while a child runs or will follow."""

    def __init__(
        self,
        context: SpawnContext,
        limits: Settings,
        on_death: Callable[[DeadChild], None],
        on_silence: Callable[[UUID, frozenset[int]], None],
        number: int,
    ) -> None:
        """Make an empty slot. `on_death` gets each dead child that may have left jobs unreleased.

        `on_silence` gets the node and the running jobs of a child that can't report them itself.
        """
        self._context, self._limits, self._number = context, limits, number
        self._on_death, self._on_silence = on_death, on_silence
        self._silence_at = 0.0
        self.child: ChildProcess | None = None
        self.exit_code: int | None = None
        self._unhealthy = Debounce()
        self._failures = 0
        self._begin_at = 0.0

    def tick(self, stop_by: float | None) -> None:
        """Start, stop, kill or replace the child, whatever is due.

        With `stop_by`, a time of the monotonic clock, it must end by then, and none follows.
        """
        if self.child is None:
            self._fill(stop_by)
        elif (code := self.child.exit_code) is not None:
            self._clear(self.child, code, stop_by)
        else:
            self._supervise(self.child, stop_by)
            self._note_silence(self.child)

    def _note_silence(self, child: ChildProcess) -> None:
        """Give `on_silence` the running jobs of a child whose other threads a handler blocks.

        Such a child renews no lease. When its leases end, a retry is counted for the jobs that ran.
        """
        if child.is_silent and not child.is_stopping and time.monotonic() >= self._silence_at:
            self._silence_at = time.monotonic() + SILENCE_EVERY
            self._on_silence(child.order.node_id, frozenset(child.shared_state.running()))

    def _fill(self, stop_by: float | None) -> None:
        if self.exit_code is not None:
            return
        if stop_by is not None:
            self.exit_code = 0
        elif time.monotonic() >= self._begin_at:
            self._start()

    def _start(self) -> None:
        try:
            self.child = ChildProcess(self._context, self._limits, self._number)
        except OSError as error:  # For example, the kernel has no memory for another process.
            pause = self._pause(lived=0.0)
            emit(LoopFailed("supervisor", f"no child can be started: {error}", pause))

    def _supervise(self, child: ChildProcess, stop_by: float | None) -> None:
        if child.is_killed:
            return  # The system takes a moment to end it.
        if child.is_late:
            logger.warning("Child %d did not stop in time and is killed.", child.pid)
            child.kill()
        elif stop_by is not None and not child.is_stopping:
            child.stop(stop_by)
        elif self._unhealthy.observe(child.is_unhealthy) and not child.is_stopping:
            logger.error("Child %d is unhealthy and will be replaced.", child.pid)
            child.was_unhealthy = True
            child.stop(time.monotonic() + stop_seconds(self._limits))

    def _clear(self, child: ChildProcess, code: int, stop_by: float | None) -> None:
        """Remove a child that has ended, and decide whether another one follows."""
        self.child = None
        child.close()
        # A handler may end its process with any code, so the code counts only after a full stop.
        outcome = code if child.shared_state.has_left else None
        if outcome is None:
            self._report_crash(child, code, stop_by)
        elif child.was_unhealthy:
            # Its loops may have been unable to give back its jobs.
            self._on_death(DeadChild(child.order.node_id, frozenset()))
        is_burst = self._limits.BURST or self._limits.ONCE
        is_done = outcome == 0 and is_burst and not child.is_stopping
        if stop_by is not None and outcome != MISCONFIGURED:
            self.exit_code = 0
        elif is_done or outcome == MISCONFIGURED:
            self.exit_code = outcome
        elif outcome != RETIRED:
            self._pause(time.monotonic() - child.began_at)

    def _report_crash(self, child: ChildProcess, code: int, stop_by: float | None) -> None:
        """Hand a crashed child to `on_death`, with the jobs that are charged: those that ran.

        While the supervisor stops, `stop_by` is set and no job is charged, because the supervisor
        may have killed the child. SIGTERM ends a child that has not started: that is no error.
        """
        running = child.shared_state.running()
        noun = "job" if len(running) == 1 else "jobs"
        is_error = stop_by is None or code != -signal.SIGTERM
        log = logger.error if is_error else logger.info
        log("Child %d ended with %d while running %d %s.", child.pid, code, len(running), noun)
        started = frozenset(running if stop_by is None else ())
        self._on_death(DeadChild(child.order.node_id, started))

    def _pause(self, lived: float) -> float:
        """Set the time of the next start, and return the seconds until then.

        `lived` is the number of seconds that the last child lived.
        """
        self._failures = 0 if lived > STABLE else min(self._failures + 1, 10)
        longest = min(FIRST_PAUSE * 2.0 ** (self._failures - 1), LONGEST_PAUSE)
        pause = longest * random.uniform(0.7, 1) if self._failures else 0.0
        self._begin_at = time.monotonic() + pause
        return pause
