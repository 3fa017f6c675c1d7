"""Circuits of the consumers that this process serves, shared by all its threads."""

import threading
import time
from typing import Any

from pulljobs.conf import Settings
from pulljobs.engine.circuit import Circuit, Result
from pulljobs.engine.telemetry import CircuitChanged, emit
from pulljobs.handlers import Handler


class ConsumerCircuit:
    """Circuit of one consumer, behind a lock."""

    def __init__(self, handler: Handler, limits: Settings) -> None:
        self._path = handler.path
        # A burst ends by itself and should not wait for a circuit.
        is_disabled = not handler.backoff or limits.BURST or limits.ONCE
        initial = 0 if is_disabled else limits.BACKOFF_INITIAL.total_seconds()
        self.circuit = Circuit(initial, limits.BACKOFF_MAX.total_seconds(), limits.BACKOFF_AFTER)
        self._lock = threading.Lock()

    def room(self) -> int | None:
        """Return how many jobs may be claimed now; None: any number."""
        with self._lock:
            return self.circuit.room(time.monotonic())

    def wait(self) -> float:
        """Return the seconds until a job may be claimed; 0: now, or once the probe has ended."""
        return max(0.0, self.circuit.blocked_until - time.monotonic())

    def note_claim(self, ticket: int) -> None:
        """Note that a claim under that ticket returned jobs."""
        with self._lock:
            self.circuit.claimed(ticket)

    def note_result(self, ticket: int, result: Result) -> None:
        """Note once how a job of a claim under that ticket ended; callable from any thread."""
        with self._lock:
            now = time.monotonic()
            if not self.circuit.tell(ticket, result, now):
                return
            state, level = self.circuit.state(now), self.circuit.level
        emit(CircuitChanged(*self._path, state, level, self.wait()))

    def report(self) -> dict[str, Any] | None:
        """Return state, level and seconds to wait; None if the circuit is closed."""
        with self._lock:
            state = self.circuit.state(time.monotonic())
            level = self.circuit.level
        return {"state": state, "level": level, "seconds": round(self.wait(), 1)} if level else None


class Circuits:
    """Circuits by consumer, each created when the fetcher first asks for it."""

    def __init__(self, limits: Settings) -> None:
        self._limits = limits
        self._circuits: dict[tuple[str, str], ConsumerCircuit] = {}

    def get(self, handler: Handler) -> ConsumerCircuit:
        """Return the circuit breaker of the handler's consumer; create it at the first call."""
        known = self._circuits.get(handler.path)
        if known is None:
            known = self._circuits.setdefault(handler.path, ConsumerCircuit(handler, self._limits))
        return known

    def waits(self) -> list[float]:
        """Return the seconds until each consumer may be claimed for again."""
        return [circuit.wait() for circuit in list(self._circuits.values())]

    def report(self) -> dict[str, Any]:
        """Return the reports of the circuits that are not closed, by channel/consumer."""
        reports = {"/".join(path): circuit.report() for path, circuit in [*self._circuits.items()]}
        return {path: report for path, report in reports.items() if report is not None}
