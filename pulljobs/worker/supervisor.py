"""The supervisor: keeps its children working, lets a crash cost who did it, passes signals on."""

import multiprocessing
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import wait
from types import FrameType
from typing import Any, Final

from pulljobs.conf import Settings
from pulljobs.metrics import sharing
from pulljobs.worker import boot
from pulljobs.worker.child_process import ChildProcess, patience
from pulljobs.worker.child_slot import Post
from pulljobs.worker.lease_recovery import Debts
from pulljobs.worker.probes import Health, Probes

LOOK: Final = 0.2
LAST_PAYMENT: Final = 3.0
"""Seconds at the most for what killed children held; a few hundredths, where all is well."""
KILLED_BY_HAND: Final = 1


class Supervisor:
    """It runs no handlers: they may end their process, this one may not end."""

    def __init__(self, limits: Settings) -> None:
        context = multiprocessing.get_context("spawn")
        self._limits = limits
        self._debts = Debts(limits.DATABASE)
        self._posts = [
            Post(context, limits, self._debts.owe, number) for number in range(limits.PROCESSES)
        ]
        self._signals = 0
        self._stop_by: float | None = None

    def run(self) -> int:
        """Work until stopped, or until a burst is over; the exit code."""
        with ExitStack() as stack:
            stack.enter_context(self._signals_taken())
            if self._limits.METRICS:
                stack.enter_context(sharing.opened("supervisor"))
            if self._limits.HEALTH_PORT is not None:
                address = (self._limits.HEALTH_HOST, self._limits.HEALTH_PORT)
                stack.enter_context(Probes(address, self.health, metrics=self._limits.METRICS))
            while any(post.exit_code is None for post in self._posts):
                self._pass()
            self._debts.end(LAST_PAYMENT if self._signals else patience(self._limits))
        if self._signals > 1:
            return KILLED_BY_HAND
        return max(post.exit_code or 0 for post in self._posts)

    def health(self) -> list[Health]:
        """Of each child; one that is being replaced is well, but not ready."""
        return [
            Health(child.pid, is_live=not child.is_sick, is_ready=child.is_ready)
            if (child := post.child) is not None
            else Health(0, is_live=True, is_ready=False)
            for post in self._posts
        ]

    def _pass(self) -> None:
        for post in self._posts:
            post.tick(self._stop_by)
        if any(post.exit_code == boot.MISCONFIGURED for post in self._posts):
            self._stop()
        if any(post.exit_code is None for post in self._posts):
            wait([child.sentinel for child in self._children()], LOOK)

    def _children(self) -> list[ChildProcess]:
        return [post.child for post in self._posts if post.child is not None]

    def _stop(self) -> None:
        if self._stop_by is None:
            self._stop_by = time.monotonic() + patience(self._limits)

    @contextmanager
    def _signals_taken(self) -> Iterator[None]:
        """The first SIGTERM or SIGINT stops the children, a second one kills them."""
        taken: dict[int, Any] = {
            signal.SIGTERM: self._on_stop,
            signal.SIGINT: self._on_stop,
            signal.SIGUSR1: self._on_ask,
        }
        before = {number: signal.signal(number, what) for number, what in taken.items()}
        try:
            yield
        finally:
            for number, what in before.items():
                signal.signal(number, what)

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        self._stop()
        for child in self._children():
            if self._signals > 1 or self._stop_by is None:
                child.kill()
            else:
                child.stop(self._stop_by)

    def _on_ask(self, number: int, frame: FrameType | None) -> None:
        for child in self._children():
            child.ask()
