"""The circuits of consumers, for all threads of the worker."""

import threading
import time
from typing import Any

from pulljobs.conf import Settings
from pulljobs.engine.circuit import Circuit, Result
from pulljobs.engine.telemetry import CircuitChanged, emit
from pulljobs.handlers import Handler


class Breaker:
    """The circuit of one consumer."""

    def __init__(self, handler: Handler, limits: Settings) -> None:
        self._place = handler.path
        # A burst comes to an end by itself, and had better not be long about it.
        is_disabled = not handler.backoff or limits.BURST or limits.ONCE
        initial = 0 if is_disabled else limits.BACKOFF_INITIAL.total_seconds()
        self.circuit = Circuit(initial, limits.BACKOFF_MAX.total_seconds(), limits.BACKOFF_AFTER)
        self._lock = threading.Lock()

    def room(self) -> int | None:
        """How many jobs may be claimed now; None: any number."""
        with self._lock:
            return self.circuit.room(time.monotonic())

    def wait(self) -> float:
        """Seconds until one may be; 0: now, or when the one that is out has come back."""
        return max(0.0, self.circuit.blocked_until - time.monotonic())

    def claimed(self, ticket: int) -> None:
        """A claim under that ticket brought some."""
        with self._lock:
            self.circuit.claimed(ticket)

    def tell(self, ticket: int, result: Result) -> None:
        """How a job of that claim ended, once; from any thread."""
        with self._lock:
            now = time.monotonic()
            if not self.circuit.tell(ticket, result, now):
                return
            state, level = self.circuit.state(now), self.circuit.level
        emit(CircuitChanged(*self._place, state, level, self.wait()))

    def report(self) -> dict[str, Any] | None:
        """None: closed."""
        with self._lock:
            state = self.circuit.state(time.monotonic())
            level = self.circuit.level
        return {"state": state, "level": level, "seconds": round(self.wait(), 1)} if level else None


class Breakers:
    """Those of all consumers, made when they are first asked for."""

    def __init__(self, limits: Settings) -> None:
        self._limits = limits
        self._breakers: dict[tuple[str, str], Breaker] = {}

    def of(self, handler: Handler) -> Breaker:
        known = self._breakers.get(handler.path)
        if known is None:
            known = self._breakers.setdefault(handler.path, Breaker(handler, self._limits))
        return known

    def waits(self) -> list[float]:
        """Seconds until each may be tried again."""
        return [breaker.wait() for breaker in list(self._breakers.values())]

    def report(self) -> dict[str, Any]:
        """Those that are not closed, by channel/consumer."""
        reports = {"/".join(place): one.report() for place, one in list(self._breakers.items())}
        return {place: report for place, report in reports.items() if report is not None}
