"""Circuits of the consumers that this process serves, shared by all its threads.

A consumer of tasks has a circuit for each task, so that a failing task holds back only itself: the
worker goes on claiming for the consumer and releases the jobs of the task.
"""

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pulljobs.conf import Settings
from pulljobs.engine.circuit import LONGEST_NAME, Circuit, Result, ResultCounter
from pulljobs.engine.telemetry import CircuitChanged, emit
from pulljobs.handlers import ClaimedJob, Handler

WHOLE: Final = ""
"""Key of the circuit of a consumer that is not divided into tasks."""
REMEMBERED_TASKS: Final = 200
REPORTED_TASKS: Final = 20


class ConsumerCircuit(ResultCounter):
    """Circuits of a consumer behind a lock: a single one, or a circuit for each failing task."""

    def __init__(self, handler: Handler, limits: Settings) -> None:
        self._names, self._task_of = handler.names, handler.task_of
        # A burst ends by itself and should not wait for a circuit.
        self._is_disabled = not handler.backoff or limits.BURST or limits.ONCE
        self._limits = limits
        self._circuits: dict[str, Circuit] = {}
        self._open: set[str] = set()
        self._disturbed: set[str] = set()
        self._last: dict[str, tuple[int, str]] = {}
        """Job that failed last by circuit, and the name of its exception if there was one."""
        self._lock = threading.Lock()
        self.is_calm = True
        """True if only a failure changes a circuit, so that other results need not be counted."""
        self.ticket = 0
        """Number of the last change of any of these circuits. Each claim notes it."""

    def room(self) -> int | None:
        """Return how many jobs may be claimed now, or None for any number."""
        with self._lock:
            circuit = self._whole
            return None if circuit is None else circuit.room(time.monotonic())

    def wait(self) -> float:
        """Return the seconds until a job may be claimed, 0 for now.

        While a probe runs it is 0 as well, because the end of the probe decides.
        """
        circuit = self._whole
        return 0.0 if circuit is None else _wait(circuit)

    def admit(self, ticket: int, jobs: Sequence[ClaimedJob]) -> dict[ClaimedJob, float]:
        """Return the jobs that must not run yet, each with the seconds until its next claim.

        `ticket` is the value of `self.ticket` when the claim was sent.
        """
        if not self._open:
            return {}
        tasks = [self._task(job) for job in jobs]
        with self._lock:
            now = time.monotonic()
            waits = [
                circuit.admit(ticket, job.id, now) if (circuit := self._circuits.get(task)) else 0.0
                for task, job in zip(tasks, jobs, strict=True)
            ]
        return {job: wait for job, wait in zip(jobs, waits, strict=True) if wait}

    def note_result(self, ticket: int, job: ClaimedJob, result: Result) -> None:
        """Count the result of a job in its circuit. Any thread may call this.

        `ticket` is the value of `self.ticket` when the claim was sent. If the circuit has changed
        since, the result does not count.
        """
        if self._is_disabled:
            return
        task = self._task(job)
        with self._lock:
            circuit = self._circuits.get(task)
            if circuit is None:
                if result is not Result.FAILURE:
                    return
                circuit = self._add(task)
            if result is Result.FAILURE:
                self._last[task] = job.id, job.failure
            has_changed = circuit.count_result(ticket, job.id, result, time.monotonic())
            self._note_state(task, circuit)
            state, level = circuit.state(time.monotonic()), circuit.level
        if has_changed:
            emit(CircuitChanged(*self._names, state, level, _wait(circuit), task))

    def holds_back(self, ticket: int, job: ClaimedJob) -> bool:
        """Return True if the job must not start, because the circuit opened after its claim."""
        if not self._open:
            return False
        task = self._task(job)
        with self._lock:
            circuit = self._circuits.get(task)
            return circuit is not None and circuit.level > 0 and ticket < circuit.ticket

    @property
    def level(self) -> int:
        """Highest level of the consumer's circuits, which sets the pause; 0 if all are closed."""
        with self._lock:
            return max((self._circuits[task].level for task in self._open), default=0)

    def report(self) -> dict[str, Any] | None:
        """Return the circuit with the highest level as a dict for JSON, or None if all are closed.

        For a consumer of tasks, "tasks" has up to `REPORTED_TASKS` circuits by task, highest first.
        """
        with self._lock:
            reports = {task: self._report(task) for task in self._open}
        if not reports:
            return None
        worst = sorted(reports, key=lambda task: (-reports[task]["level"], task))
        if self._task_of is None:
            return reports[WHOLE]
        tasks = {task[:LONGEST_NAME]: reports[task] for task in worst[:REPORTED_TASKS]}
        return reports[worst[0]] | {"tasks": tasks}

    @property
    def _whole(self) -> Circuit | None:
        return None if self._task_of is not None else self._circuits.get(WHOLE)

    def _task(self, job: ClaimedJob) -> str:
        return WHOLE if self._task_of is None else self._task_of(job.payload)

    def _add(self, task: str) -> Circuit:
        if len(self._circuits) >= REMEMBERED_TASKS:
            # Names come from messages: there may be any number of them.
            self._forget_oldest()
        limits = self._limits
        initial, longest = limits.BACKOFF_INITIAL, limits.BACKOFF_MAX
        self._circuits[task] = Circuit(
            initial.total_seconds(),
            longest.total_seconds(),
            limits.BACKOFF_AFTER,
            next_ticket=self._next_ticket,
        )
        return self._circuits[task]

    def _forget_oldest(self) -> None:
        """Forget the oldest task without known failures, or just the oldest if all have some."""
        calm = (task for task in self._circuits if task not in self._disturbed)
        task = next(calm, next(iter(self._circuits)))
        del self._circuits[task]
        self._last.pop(task, None)
        self._open.discard(task)
        self._disturbed.discard(task)

    def _next_ticket(self) -> int:
        self.ticket += 1
        return self.ticket

    def _note_state(self, task: str, circuit: Circuit) -> None:
        if circuit.level > 0:
            self._open.add(task)
        else:
            self._open.discard(task)
        if circuit.is_calm:
            self._disturbed.discard(task)
        else:
            self._disturbed.add(task)
        self.is_calm = not self._disturbed

    def _report(self, task: str) -> dict[str, Any]:
        circuit = self._circuits[task]
        job, error = self._last[task]
        return {
            "state": circuit.state(time.monotonic()),
            "level": circuit.level,
            "seconds": round(_wait(circuit), 1),
            "failing": circuit.failing,
            "job": str(job),
            "error": error,
        }


class Circuits:
    """Circuits by consumer, each created when the fetcher first asks for it."""

    def __init__(self, limits: Settings) -> None:
        self._limits = limits
        self._circuits: dict[tuple[str, str], ConsumerCircuit] = {}

    def get(self, handler: Handler) -> ConsumerCircuit:
        """Return the circuits of the handler's consumer, which the first call creates."""
        known = self._circuits.get(handler.names)
        if known is None:
            known = self._circuits.setdefault(handler.names, ConsumerCircuit(handler, self._limits))
        return known

    def waits(self, handlers: Iterable[Handler]) -> list[float]:
        """Return for each handler, in order, the seconds until a job may be claimed, or 0."""
        return [self.get(handler).wait() for handler in handlers]

    def report(self) -> dict[str, Any]:
        """Return the reports of the circuits that are not closed, by channel/consumer."""
        reports = [("/".join(names), each.report()) for names, each in [*self._circuits.items()]]
        return {path: report for path, report in reports if report is not None}


def _wait(circuit: Circuit) -> float:
    return max(0.0, circuit.blocked_until - time.monotonic())
