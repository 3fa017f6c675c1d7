"""Running loops: threads, wake-up, jitter, error back-off and stopping, once for all of them."""

import random
import threading
import time
from typing import Any, Final, Protocol

from django.db import connections

from pulljobs.conf import settings
from pulljobs.engine.telemetry import LoopFailed, emit
from pulljobs.storage import statements

JITTER: Final = 0.3
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 1.0
"""Shorter than leases: outcomes of an outage are written before others get the jobs."""
QUIET: Final = 1.0


class Loop(Protocol):
    def tick(self) -> float:
        """One pass; the seconds to wait before the next."""


class Runner:
    """A thread that ticks a loop until it is stopped; an error makes it pause, never end."""

    def __init__(self, name: str, loop: Loop, *, spread: float = 0.0) -> None:
        """`spread`: the seconds over which the first passes of processes are spread."""
        self.name, self._loop, self._spread = name, loop, spread
        self._stopping = threading.Event()
        self._wakened = threading.Event()
        self._failures = 0
        self._last_report = -QUIET
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._pass_began: float | None = None
        self._pass_ended = time.monotonic()

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """End the wait before the next pass."""
        if not self._wakened.is_set():
            self._wakened.set()

    def stop(self) -> None:
        """Ask it to end after the pass it is in; harmless before the start and a second time."""
        self._stopping.set()
        self._wakened.set()

    @property
    def is_stopping(self) -> bool:
        """Or it has ended as it was asked to."""
        return self._stopping.is_set()

    def join(self, timeout: float) -> bool:
        """Whether it has ended within so many seconds."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, timeout))
        return not self._thread.is_alive()

    def is_sick(self, patience: float) -> bool:
        """Whether its thread died, or hangs in a pass for longer than that."""
        if self._has_ended:
            return not self._stopping.is_set()
        began = self._pass_began
        return began is not None and time.monotonic() - began > patience

    def report(self) -> dict[str, Any]:
        """What it is doing, in seconds."""
        now, began = time.monotonic(), self._pass_began
        return {
            "alive": not self._has_ended,
            "in_pass_seconds": None if began is None else round(now - began, 1),
            "last_pass_seconds": round(now - self._pass_ended, 1),
            "failures": self._failures,
        }

    @property
    def _has_ended(self) -> bool:
        return self._thread.ident is not None and not self._thread.is_alive()

    def _run(self) -> None:
        statements.dedicate(settings().DATABASE)
        try:
            self._stopping.wait(random.uniform(0, self._spread))
            while not self._stopping.is_set():
                self._pass_began = time.monotonic()
                pause = self._pass()
                self._pass_began, self._pass_ended = None, time.monotonic()
                if pause > 0:
                    self._wakened.wait(pause)
                self._wakened.clear()
        finally:
            connections.close_all()

    def _pass(self) -> float:
        try:
            pause = self._loop.tick()
        except Exception as error:
            return self._after(error)
        self._failures = 0
        return pause * random.uniform(1 - JITTER, 1)

    def _after(self, error: Exception) -> float:
        connections[settings().DATABASE].close()
        pause = min(FIRST_PAUSE * 2.0**self._failures, LONGEST_PAUSE) * random.uniform(0.5, 1)
        self._failures = min(self._failures + 1, 10)
        if time.monotonic() - self._last_report >= QUIET:
            self._last_report = time.monotonic()
            emit(LoopFailed(self.name, f"{type(error).__name__}: {error}".strip(), pause))
        return pause
