"""Deletion of outdated runs and signals, a page of rows at each call."""

from datetime import timedelta
from typing import Final

from pulljobs.storage.statements import run

AT_ONCE: Final = 5_000
"""Old rows that are read at once."""
_marks: dict[tuple[str, str], int] = {}
"""Id after which the next call in this process goes on, by database and statement."""


def forget_runs(using: str, age: timedelta) -> int:
    """Delete the runs among the next old ones whose jobs are gone. Return their number."""
    return _forget(using, "forget_runs", age)


def forget_signals(using: str, age: timedelta) -> int:
    """Delete the signals among the next old ones to jobs that were never claimed and are gone.

    Return their number.
    """
    return _forget(using, "forget_signals", age)


def _forget(using: str, name: str, age: timedelta) -> int:
    """Run a statement that deletes some of the next `AT_ONCE` old rows. Return how many it deleted.

    Old runs may be live for years, so no call reads them all. The next call goes on after the last
    row that was read, and begins again at the end of the table.
    """
    params = {"age": age, "after": _marks.get((using, name), 0), "scanned": AT_ONCE}
    [row] = run(using, name, params)
    _marks[using, name] = row.last_id or 0
    return int(row.forgotten)
