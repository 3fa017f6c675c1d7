"""Comparison of the database's clock with the monotonic clock of this process."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

SLACK: Final = 0.001
"""Seconds that go unnoticed, because low-water marks stay a few milliseconds behind the present."""
DRIFT: Final = 0.001
"""Share of the time between two observations by which synchronized clocks may differ."""


@dataclass(slots=True)
class Watch:
    """Observer that notices if the database's clock was set back: low-water marks are void then."""

    _at: datetime | None = None
    _answered: float = 0.0

    def observe(self, at: datetime, *, asked: float, answered: float) -> bool:
        """Note a time of the database's clock. Return True if it was set back since the last call.

        `at` is its time, read between the times `asked` and `answered` of this process's monotonic
        clock. The first call returns False.
        """
        before, least = self._at, (asked - self._answered) * (1 - DRIFT) - SLACK
        self._at, self._answered = at, answered
        return before is not None and (at - before).total_seconds() < least
