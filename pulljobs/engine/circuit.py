"""Circuit of a consumer: when its jobs fail in a row, its claims pause for a while.

    CLOSED      Any number of jobs may be claimed. Failures of `after` different jobs without a
                success between them open the circuit at level 1.
    OPEN        No job may be claimed for `initial` x 2^level seconds, at most `longest`.
    HALF_OPEN   One job may be claimed, the probe. Its success lowers the level, its failure raises
                it if the pause can grow. At level 0 the circuit is closed, at others it is open
                again. Another probe follows if the end of the probe is neutral.

A job that has failed already is not used as the probe. When it is claimed, it is given back once,
so that the next claim gets another job. If it is claimed again, it runs next to the probe, one such
job at a time: its failure changes nothing, its success counts.

Results of jobs that were claimed before the last change of level change no level. A circuit knows
them by tickets: a claim notes the circuit's ticket before it begins, its results carry this ticket,
and each change of level makes a higher one. Times are seconds on any clock of the caller. Only one
thread at a time may use a circuit.
"""

import json
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from typing import Any, Final

REMEMBERED: Final = 100
"""Failing jobs that a circuit remembers, the newest, or `after` of them if that is more."""
MOST_PASSES: Final = 30
LONGEST_NAME: Final = 200
"""Largest number of characters of a task's name that reports show."""
SPREAD: Final = 0.002
"""Seconds between the returns of two jobs that an open circuit has given back."""


class CircuitState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Result(StrEnum):
    SUCCESS = "success"
    FAILURE = "failure"
    NEUTRAL = "neutral"
    """The end says nothing about the next job, as after a release or `Retry(backoff=False)`."""


def task_of(payload: bytes) -> str:
    """Return the name of the task in a payload of `django.tasks`, or an empty text for others.

    Unprintable characters are replaced, because the name is logged and stored in reports.
    """
    try:
        name = str(json.loads(payload)["task"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    if name.isprintable():
        return name
    return "".join(char if char.isprintable() else UNPRINTABLE for char in name)


FAILURE: Final = Result.FAILURE
UNPRINTABLE: Final = "\N{REPLACEMENT CHARACTER}"


class ResultCounter:
    """Interface of a circuit for claimed jobs, and itself a circuit that never opens."""

    is_calm = True
    """True if only a failure changes the circuit, so that other results need not be noted."""

    def note_result(self, ticket: int, job: Any, result: Result) -> None:
        """Note the result of a job. The worker calls this once for each job.

        `ticket` numbers the circuit's last change before the claim. Later changes void the result.
        """

    def holds_back(self, ticket: int, job: Any) -> bool:
        """Return True if the circuit opened after the job was claimed: the job must not start."""
        return False


@dataclass(slots=True)
class Circuit:
    """Circuit that opens when `after` different jobs have failed in a row.

    It is open for `initial` x 2^level seconds, at most `longest`, and never if either is 0.
    """

    initial: float
    longest: float
    after: int
    strategy: Callable[[float], float] = float
    """Function from the seconds of a level to the seconds to wait, which may add jitter."""
    level: int = 0
    blocked_until: float = 0.0
    ticket: int = 0
    """Number of the last change, which claims note. Results of claims before it change no level."""
    next_ticket: Callable[[], int] = field(default_factory=lambda: count(1).__next__)
    """Function that returns a higher number at every call. Circuits of one consumer share it."""
    _failing: dict[Hashable, int] = field(default_factory=dict)
    """Jobs that failed without a success since, each with how often it was given back."""
    _probe: Hashable = None
    _known: Hashable = None
    """Job that has failed before and now runs next to the probe, or None if there is none."""
    _given_back: int = 0

    def state(self, now: float) -> CircuitState:
        if not self.level:
            return CircuitState.CLOSED
        return CircuitState.OPEN if now < self.blocked_until else CircuitState.HALF_OPEN

    @property
    def is_calm(self) -> bool:
        """True if it is closed and remembers no failing job, so that only a failure changes it."""
        return not (self.level or self._failing)

    @property
    def failing(self) -> int:
        """Number of different jobs that the circuit remembers as failing."""
        return len(self._failing)

    def room(self, now: float) -> int | None:
        """Return how many jobs may be claimed now: None for any number, 1 for a probe, else 0."""
        state = self.state(now)
        if state is CircuitState.CLOSED:
            return None
        return int(state is CircuitState.HALF_OPEN and self._probe is None)

    def admit(self, ticket: int, job: Hashable, now: float) -> float:
        """Return 0.0 if a claimed job may run, else the seconds of delay for its release."""
        if not self.level or ticket < self.ticket:
            return 0.0
        if now < self.blocked_until:
            return self._spread(self.blocked_until - now)
        if job in self._failing:
            return self._admit_known(job)
        if self._probe is not None:
            return self._spread(self.seconds(self.level))
        self._probe = job
        return 0.0

    def count_result(self, ticket: int, job: Hashable, result: Result, now: float) -> bool:
        """Count a job's result. Return True if it opened, reopened or closed the circuit.

        If the circuit changed after the claim, which noted `ticket`, at most remember a failure.
        """
        if not (self.initial and self.longest):
            return False
        if ticket < self.ticket:
            if self.level and result is Result.FAILURE:
                self._remember(job)
            return False
        if self.level:
            return self._end_trial(job, result, now)
        if result is Result.SUCCESS:
            self._failing.clear()
        elif result is Result.FAILURE:
            self._remember(job)
        if len(self._failing) < self.after:
            return False
        return self._change(1, now)

    def seconds(self, level: int) -> float:
        """Return how many seconds the circuit is open at a level, without its `strategy`."""
        return min(self.initial * 2.0**level, self.longest)

    def _admit_known(self, job: Hashable) -> float:
        passes = self._failing[job]
        if passes and self._known is None:
            self._failing[job], self._known = 0, job
            return 0.0
        self._failing[job] = min(passes + 1, MOST_PASSES)
        return min(self.initial * 2.0**passes, self.seconds(self.level))

    def _spread(self, seconds: float) -> float:
        """Return the seconds plus a bit more at each call, so that jobs come back one by one."""
        self._given_back += 1
        return seconds + self._given_back * SPREAD

    def _end_trial(self, job: Hashable, result: Result, now: float) -> bool:
        """Count the result of the probe, or of a known failing job that runs next to it.

        A half-open circuit lets the probe run. Return True if the circuit opened again or closed.
        """
        if job == self._probe:
            self._probe = None
        elif job == self._known:
            self._known = None
        else:
            return False
        if result is Result.SUCCESS:
            self._failing.pop(job, None)
            return self._change(self.level - 1, now)
        if result is Result.NEUTRAL or job in self._failing:
            return False
        self._remember(job)
        # Not above the first level that takes the longest: every step up has a step down.
        is_highest = self.seconds(self.level) >= self.longest
        return self._change(self.level if is_highest else self.level + 1, now)

    def _remember(self, job: Hashable) -> None:
        self._failing.setdefault(job, 0)
        if len(self._failing) > max(self.after, REMEMBERED):
            del self._failing[next(iter(self._failing))]

    def _change(self, level: int, now: float) -> bool:
        self.level, self._probe, self._known, self._given_back = level, None, None, 0
        if not level:
            self._failing.clear()
        self.ticket = self.next_ticket()
        self.blocked_until = now + self.strategy(self.seconds(level)) if level else 0.0
        return True
