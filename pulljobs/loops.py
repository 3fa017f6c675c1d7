"""Loops and the threads that run them: wake-up, jitter, pauses after errors, and stopping."""

import random
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from django.db import OperationalError, connections

from pulljobs.conf import settings
from pulljobs.engine.telemetry import LoopFailed, describe_error, emit
from pulljobs.storage import schema, sessions, transactions
from pulljobs.storage.sessions import LOOP_SECONDS

JITTER: Final = 0.3
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 1.0
"""Longest pause after a failed pass, in seconds.

It is shorter than leases: after an outage, outcomes are written before the leases end.
"""
QUIET: Final = 1.0
"""Seconds between two reports of failing passes."""
HAND_OVER_SECONDS: Final = 0.0001
PART_SECONDS: Final = 1.0
"""Seconds within which `repeat_each` repeats a function. The next pass does the rest."""


class Loop(Protocol):
    """Periodic work of a process, one pass at a time. A `Runner` calls it."""

    def tick(self) -> float:
        """Do one pass and return the seconds to wait before the next."""


class Runner:
    """Thread that calls `tick` of a loop until it is stopped. Errors only make it pause."""

    def __init__(
        self,
        name: str,
        loop: Loop,
        *,
        spread: float = 0.0,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """Make the thread of a loop, without starting it.

        `spread` is the seconds over which the first passes of several processes are spread. The
        thread calls `prepare` before the first pass, which begins even if `prepare` fails.
        """
        self.name, self._loop, self._spread, self._prepare = name, loop, spread, prepare
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._failures = 0
        self._last_report = -QUIET
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._pass_began: float | None = None
        self._pass_ended = time.monotonic()

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """End the wait before the next pass. If a pass is running, no wait follows it."""
        if not self._woken.is_set():
            self._woken.set()

    def stop(self) -> None:
        """End the loop after its current pass. Early and repeated calls are harmless."""
        self._stopping.set()
        self._woken.set()

    @property
    def is_stopping(self) -> bool:
        """True once `stop` was called, even if the loop has ended."""
        return self._stopping.is_set()

    def join(self, timeout: float) -> bool:
        """Wait for the end of the thread. Return False if it takes longer than `timeout` seconds.

        A thread that was never started counts as ended.
        """
        if self._thread.ident is not None:
            self._thread.join(max(0.0, timeout))
        return not self._thread.is_alive()

    def is_unhealthy(self, patience: float) -> bool:
        """Return True if the thread died, or is in one pass for more than `patience` seconds."""
        if self._has_ended:
            return not self._stopping.is_set()
        began = self._pass_began
        return began is not None and time.monotonic() - began > patience

    def report(self) -> dict[str, Any]:
        """Return the state of the loop for the report of its worker, with times in seconds.

        `in_pass_seconds` is None between passes. `failures` counts failures in a row, up to 10.
        """
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
        sessions.dedicate(settings().DATABASE)
        try:
            self._begin()
            self._stopping.wait(random.uniform(0, self._spread))
            while not self._stopping.is_set():
                self._pass_began = time.monotonic()
                pause = self._pass()
                self._pass_began, self._pass_ended = None, time.monotonic()
                if pause > 0:
                    self._woken.wait(pause)
                self._woken.clear()
        finally:
            connections.close_all()

    def _begin(self) -> None:
        try:
            with _bounded():
                self._prepare()
        except Exception as error:  # The first pass may not meet it, so it is reported here.
            self._pause_after(error)

    def _pass(self) -> float:
        try:
            with _bounded():
                pause = self._loop.tick()
        except Exception as error:
            return self._pause_after(error)
        self._failures = 0
        return pause * random.uniform(1 - JITTER, 1)

    def _pause_after(self, error: Exception) -> float:
        connections[settings().DATABASE].close()
        pause = min(FIRST_PAUSE * 2.0**self._failures, LONGEST_PAUSE) * random.uniform(0.5, 1)
        self._failures = min(self._failures + 1, 10)
        if time.monotonic() - self._last_report >= QUIET:
            self._last_report = time.monotonic()
            emit(LoopFailed(self.name, schema.advice(error) or describe_error(error), pause))
        return pause


def _bounded() -> AbstractContextManager[None]:
    """Return a context in which each statement, and each commit, has a time limit."""
    patience = settings().LIVENESS_TIMEOUT.total_seconds() / 2
    return sessions.bounded_pass(settings().DATABASE, min(LOOP_SECONDS, patience))


def give_way() -> None:
    """Let a thread that the caller has just woken run before the caller goes on.

    To wake takes some time. Without this pause, or with one of 0, the caller would hold the lock of
    the interpreter again by then, and the woken thread would wait for it.
    """
    time.sleep(HAND_OVER_SECONDS)


def repeat_each(parts: Iterable[Callable[[], bool]]) -> bool:
    """Call each function again while it returns True, but not for longer than PART_SECONDS.

    Return True if any has more to do. A function whose wait for a lock timed out does not stop the
    others: its OperationalError is raised after them.
    """
    has_more, late = False, None
    for part in parts:
        try:
            has_more |= _repeat(part)
        except OperationalError as error:
            if not transactions.is_wait(error):
                raise
            late = late or error
    if late is not None:
        raise late
    return has_more


def _repeat(part: Callable[[], bool]) -> bool:
    """Call a function until it returns False. Return True if PART_SECONDS were over before that."""
    until = time.monotonic() + PART_SECONDS
    while part():
        if time.monotonic() >= until:
            return True
    return False
