"""Debounce of conditions that look true for a moment after a pause of the whole process."""

from typing import Final

OBSERVATIONS: Final = 5


class Debounce:
    """Filter that reports a condition only after several observations in a row.

    A process that was paused, as by a suspended machine, wakes up with every heartbeat overdue.
    """

    def __init__(self) -> None:
        self._in_a_row = 0

    def observe(self, is_true: bool) -> bool:
        """Note an observation and return True if the last `OBSERVATIONS` were all true."""
        self._in_a_row = self._in_a_row + 1 if is_true else 0
        return self._in_a_row >= OBSERVATIONS
