"""Upkeep of the rows of runs."""

from datetime import timedelta
from typing import Final

from pulljobs.storage.statements import run

AT_ONCE: Final = 5_000
"""Old rows that are read at once."""
_marks: dict[tuple[str, str], int] = {}
"""Id after which this process goes on, by database and statement."""


def forget_runs(using: str, age: timedelta) -> int:
    """Delete the runs that have ended among the next ones older than `age`. Return how many."""
    return _forget(using, "forget_runs", age)


def forget_signals(using: str, age: timedelta) -> int:
    """Delete signals to runs that ended before they began, as `forget_runs` does."""
    return _forget(using, "forget_signals", age)


def _forget(using: str, name: str, age: timedelta) -> int:
    """Look at the next old rows. Old runs may be live for years, so one call never reads them all.

    The next upkeep goes on where this one has ended, and begins again after the last row.
    """
    params = {"age": age, "after": _marks.get((using, name), 0), "scanned": AT_ONCE}
    [row] = run(using, name, params)
    _marks[using, name] = row.last_id or 0
    return int(row.forgotten)
