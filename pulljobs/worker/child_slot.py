"""A post: one child after another works at it."""

import logging
import random
import time
from collections.abc import Callable
from multiprocessing.context import SpawnContext
from typing import Final

from pulljobs.conf import Settings
from pulljobs.engine.telemetry import LoopFailed, emit
from pulljobs.worker import boot
from pulljobs.worker.child_process import ChildProcess, patience
from pulljobs.worker.debounce import Steady
from pulljobs.worker.lease_recovery import Debt

logger = logging.getLogger("pulljobs.worker")

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
STEADY: Final = 30.0
"""A child that lived so many seconds is followed by another without a pause."""


class Post:
    """`exit_code` is None until nobody is to follow."""

    def __init__(
        self, context: SpawnContext, limits: Settings, owe: Callable[[Debt], None], number: int
    ) -> None:
        self._context, self._limits, self._owe, self._number = context, limits, owe, number
        self.child: ChildProcess | None = None
        self.exit_code: int | None = None
        self._sick = Steady()
        self._failures = 0
        self._begin_at = 0.0

    def tick(self, stop_by: float | None) -> None:
        """Do what is due; with a time to stop by, nobody follows."""
        if self.child is None:
            self._fill(stop_by)
        elif (code := self.child.exit_code) is not None:
            self._leave(self.child, code, stop_by)
        else:
            self._look_after(self.child, stop_by)

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
        except OSError as error:  # As after the kernel ended a child for want of memory.
            pause = self._pause(lived=0.0)
            emit(LoopFailed("supervisor", f"no child can be started: {error}", pause))

    def _look_after(self, child: ChildProcess, stop_by: float | None) -> None:
        if child.is_late:
            logger.warning("Child %d did not stop in time; it is killed.", child.pid)
            child.kill()
        elif stop_by is not None and not child.is_stopping:
            child.stop(stop_by)
        elif self._sick.look(child.is_sick) and not child.is_stopping:
            logger.error("Child %d is not well; another takes its place.", child.pid)
            child.was_sick = True
            child.stop(time.monotonic() + patience(self._limits))

    def _leave(self, child: ChildProcess, code: int, stop_by: float | None) -> None:
        self.child = None
        child.close()
        # A handler may end its process with any code.
        said = code if child.board.has_left else None
        if said is None:
            self._blame(child, code, stop_by)
        elif child.was_sick:
            # What it could not even give back.
            self._owe(Debt(child.order.node_id, frozenset()))
        is_done = said == 0 and (self._limits.BURST or self._limits.ONCE) and not child.is_stopping
        if stop_by is not None and said != boot.MISCONFIGURED:
            self.exit_code = 0
        elif is_done or said == boot.MISCONFIGURED:
            self.exit_code = said
        elif said != boot.RETIRED:
            self._pause(time.monotonic() - child.began_at)

    def _blame(self, child: ChildProcess, code: int, stop_by: float | None) -> None:
        """What it was running is charged. A stop charges nothing, not even one that had to kill."""
        running = child.board.running()
        word = "job" if len(running) == 1 else "jobs"
        logger.error(
            "Child %d ended with %d while running %d %s.", child.pid, code, len(running), word
        )
        self._owe(Debt(child.order.node_id, frozenset(running if stop_by is None else ())))

    def _pause(self, lived: float) -> float:
        """The seconds until the next one starts, by how long the last one lived."""
        self._failures = 0 if lived > STEADY else min(self._failures + 1, 10)
        longest = min(FIRST_PAUSE * 2.0 ** (self._failures - 1), LONGEST_PAUSE)
        pause = longest * random.uniform(0.7, 1) if self._failures else 0.0
        self._begin_at = time.monotonic() + pause
        return pause
