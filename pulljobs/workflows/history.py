"""Deletion of outdated runs and signals, where each call reads a bounded number of rows."""

from datetime import timedelta
from typing import Final

from pulljobs.storage.statements import run

AT_ONCE: Final = 5_000
"""Largest number of rows that one call reads."""
_marks: dict[tuple[str, str], int] = {}
"""Id after which the next call in this process goes on, by database and statement."""


def forget_runs(using: str, age: timedelta) -> int:
    """Delete runs that ended longer than `age` ago, and return their number.

    A call reads at most `AT_ONCE` old runs.
    """
    return _forget(using, "forget_runs", age)


def forget_signals(using: str, age: timedelta) -> int:
    """Delete old signals to runs that ended before any worker began them. Return their number.

    A call reads at most `AT_ONCE` old signals.
    """
    return _forget(using, "forget_signals", age)


def _forget(using: str, name: str, age: timedelta) -> int:
    """Run a statement that deletes some of the next `AT_ONCE` old rows. Return how many it deleted.

    Old runs may be live for years, so no call reads them all. The next call goes on after the last
    row that was read, or from the first row if no old row is left after it.
    """
    params = {"age": age, "after": _marks.get((using, name), 0), "scanned": AT_ONCE}
    [row] = run(using, name, params)
    _marks[using, name] = row.last_id or 0
    return int(row.forgotten)
