"""The database's clock beside this process's own, which is never set back."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

SLACK: Final = 0.001
"""Seconds: a step this small is within the few milliseconds that marks stay behind."""
DRIFT: Final = 0.001
"""Of the time between two looks: clocks that somebody keeps right go apart by less."""


@dataclass(slots=True)
class Watch:
    """Sees that the database's clock was set back, though it may be later again by now."""

    _at: datetime | None = None
    _answered: float = 0.0

    def is_set_back(self, at: datetime, *, asked: float, answered: float) -> bool:
        """Since the last look. `at` by the database, between those times of the monotonic clock."""
        before, least = self._at, (asked - self._answered) * (1 - DRIFT) - SLACK
        self._at, self._answered = at, answered
        return before is not None and (at - before).total_seconds() < least
