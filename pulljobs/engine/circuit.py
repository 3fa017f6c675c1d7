"""Circuit of a consumer: when its jobs fail in a row, its claims pause for a while.

    CLOSED      any number of jobs; `after` failures in a row open it at level 1
    OPEN        none, for initial x 2^level seconds, but never longer than the longest
    HALF_OPEN   one job, the probe. Its success lowers the level, its failure raises it. Level 0
                closes the circuit, others open it again. A neutral end allows another probe.

Results of jobs whose claim began before the last change of state change nothing: a claim has the
ticket that was valid when it asked for its room, and a result counts under the one that is valid.
Time is seconds on any clock of the caller. Not for more than one thread at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class CircuitState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Result(StrEnum):
    SUCCESS = "success"
    FAILURE = "failure"
    NEUTRAL = "neutral"
    """The end says nothing about the next job: released, lost or given up."""


@dataclass(slots=True)
class Circuit:
    """`after` failures in a row open it; an `initial` or `longest` of 0 disables it."""

    initial: float
    longest: float
    after: int
    strategy: Callable[[float], float] = float
    """Function from the seconds of a level to the seconds to wait, which adds jitter."""
    level: int = 0
    blocked_until: float = 0.0
    ticket: int = 0
    """Ticket of the next claim, under which the results of its jobs count."""
    _failures: int = 0
    _probing: bool = False

    def state(self, now: float) -> CircuitState:
        if not self.level:
            return CircuitState.CLOSED
        return CircuitState.OPEN if now < self.blocked_until else CircuitState.HALF_OPEN

    @property
    def is_calm(self) -> bool:
        """Closed, and the last job did not fail: only a failure changes anything."""
        return not (self.level or self._failures)

    def room(self, now: float) -> int | None:
        """Return how many jobs may be claimed, None for any number."""
        state = self.state(now)
        if state is CircuitState.CLOSED:
            return None
        return int(state is CircuitState.HALF_OPEN and not self._probing)

    def claimed(self, ticket: int) -> None:
        """Note that a claim under this ticket got jobs."""
        if ticket == self.ticket:
            self._probing = self.level > 0

    def tell(self, ticket: int, result: Result, now: float) -> bool:
        """Count how a job of this ticket ended; return True if the level changed."""
        if ticket != self.ticket or not (self.initial and self.longest):
            return False
        if self.level:
            return self._probed(result, now)
        if result is not Result.NEUTRAL:
            self._failures = self._failures + 1 if result is Result.FAILURE else 0
        if self._failures < self.after:
            return False
        return self._change(1, now)

    def seconds(self, level: int) -> float:
        """Return the seconds that the circuit is open at a level."""
        return min(self.initial * 2.0**level, self.longest)

    def _probed(self, result: Result, now: float) -> bool:
        self._probing = False
        if result is Result.NEUTRAL:
            return False
        if result is Result.SUCCESS:
            return self._change(self.level - 1, now)
        # Not above the first level that takes the longest: every step up has a step down.
        is_highest = self.seconds(self.level) >= self.longest
        return self._change(self.level if is_highest else self.level + 1, now)

    def _change(self, level: int, now: float) -> bool:
        self.level, self._failures = level, 0
        self.ticket += 1
        self.blocked_until = now + self.strategy(self.seconds(level)) if level else 0.0
        return True
