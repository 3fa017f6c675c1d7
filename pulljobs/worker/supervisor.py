"""Supervisor: keeps child processes running, charges crashes to their jobs, passes on signals."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from multiprocessing.connection import wait
from types import FrameType
from typing import Any, Final, NoReturn

from pulljobs.conf import Settings
from pulljobs.metrics import sharing
from pulljobs.worker.child_process import ChildProcess, stop_seconds
from pulljobs.worker.child_slot import ChildSlot
from pulljobs.worker.lease_recovery import LeaseRecovery
from pulljobs.worker.probes import ChildHealth, ProbeServer
from pulljobs.worker.shared_state import MISCONFIGURED

LOOK: Final = 0.2
RECOVERY_PATIENCE: Final = 3.0
"""Longest wait in seconds for the lease recovery after a SIGTERM or SIGINT."""
KILLED_BY_HAND: Final = 1


class Supervisor:
    """Main process of a worker. It starts the child processes, and runs no handlers itself."""

    def __init__(self, limits: Settings) -> None:
        context = multiprocessing.get_context("spawn")
        self._limits = limits
        self._lease_recovery = LeaseRecovery(limits.DATABASE)
        self._slots = [
            ChildSlot(
                context,
                limits,
                self._lease_recovery.add,
                self._lease_recovery.note_running,
                number,
            )
            for number in range(limits.PROCESSES)
        ]
        self._signals = 0
        self._stop_by: float | None = None

    def run(self) -> int:
        """Run the children until all have ended, as after a SIGTERM. Return the exit code."""
        _open_closed_streams()
        with ExitStack() as stack:
            stack.enter_context(self._signals_handled())
            if self._limits.METRICS:
                stack.enter_context(sharing.opened("supervisor"))
            if self._limits.HEALTH_PORT is not None:
                address = (self._limits.HEALTH_HOST, self._limits.HEALTH_PORT)
                stack.enter_context(ProbeServer(address, self.health, metrics=self._limits.METRICS))
            while any(slot.exit_code is None for slot in self._slots):
                self._pass()
            self._lease_recovery.end(
                RECOVERY_PATIENCE if self._signals else stop_seconds(self._limits)
            )
        if self._signals > 1:
            return KILLED_BY_HAND
        return max(slot.exit_code or 0 for slot in self._slots)

    def health(self) -> list[ChildHealth]:
        """Return the health of every child. A slot without a child counts as live, not ready."""
        return [
            ChildHealth(child.pid, is_live=not child.is_unhealthy, is_ready=child.is_ready)
            if (child := slot.child) is not None
            else ChildHealth(0, is_live=True, is_ready=False)
            for slot in self._slots
        ]

    def _pass(self) -> None:
        for slot in self._slots:
            slot.tick(self._stop_by)
        if any(slot.exit_code == MISCONFIGURED for slot in self._slots):
            self._stop()
        if any(slot.exit_code is None for slot in self._slots):
            wait([child.sentinel for child in self._children()], LOOK)

    def _children(self) -> list[ChildProcess]:
        return [slot.child for slot in self._slots if slot.child is not None]

    def _stop(self) -> None:
        if self._stop_by is None:
            self._stop_by = time.monotonic() + stop_seconds(self._limits)

    def _signals_handled(self) -> AbstractContextManager[None]:
        """Stop the children at a SIGTERM or SIGINT in the block, and kill them at a second.

        Each SIGHUP only stops them, unless it was ignored before. SIGUSR1 has them log a report.
        """
        handlers: dict[int, Any] = {
            signal.SIGTERM: self._on_stop,
            signal.SIGINT: self._on_stop,
            signal.SIGUSR1: self._on_report_request,
            # Some programs start this one with SIGCHLD ignored, which hides the ends of children.
            signal.SIGCHLD: signal.SIG_DFL,
        }
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup sets it
            handlers[signal.SIGHUP] = self._on_hangup
        return _handling(handlers)

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        self._stop()
        for child in self._children():
            if self._signals > 1 or self._stop_by is None:
                child.kill()
            else:
                child.stop(self._stop_by)

    def _on_hangup(self, number: int, frame: FrameType | None) -> None:
        """Stop the children. A terminal that closes may send the signal more than once."""
        self._stop()

    def _on_report_request(self, number: int, frame: FrameType | None) -> None:
        for child in self._children():
            child.request_report()


def ending_at_signals() -> AbstractContextManager[None]:
    """End this process with exit code 0 at a SIGTERM or SIGINT in the block.

    A worker that is stopped before its supervisor runs ends like one that had nothing to do.
    """
    return _handling(dict.fromkeys((signal.SIGTERM, signal.SIGINT), _end))


@contextmanager
def _handling(handlers: Mapping[int, Any]) -> Iterator[None]:
    """Handle the signals in the block by these functions."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _open_closed_streams() -> None:
    """Open the null device where stdin, stdout or stderr is closed.

    Otherwise a pipe to a child would get its number, and the child would print into that pipe.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # The lowest free number is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(0)
