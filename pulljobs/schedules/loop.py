"""Loop of each worker that fires due schedules. There is no leader: row locks share the work."""

import time
from typing import Final

from pulljobs import loops
from pulljobs.conf import settings
from pulljobs.schedules import declaring, editing
from pulljobs.schedules.firing import fire_more
from pulljobs.storage.statements import run

LONGEST_SLEEP: Final = editing.LONGEST_SLEEP.total_seconds()
SHORTEST_SLEEP: Final = 0.01
LONGEST_LOCKED: Final = 0.1
"""Longest sleep in seconds while another session has a due row locked."""


class ScheduleLoop:
    """Loop that fires due schedules, and creates the rows of declared ones when it starts.

    It sleeps until the next schedule is due, at most ten seconds. A NOTIFY of a change that is due
    soon wakes it. While no schedule is due it runs one statement every ten seconds.
    """

    wake_channel = editing.WAKE_CHANNEL

    def __init__(self) -> None:
        self._look_at = float("-inf")
        self._is_woken = self._is_synced = False

    def wake(self) -> None:
        """Make the next `tick` read the table, although its sleep is not over. Thread-safe."""
        self._is_woken = True

    def tick(self) -> float:
        """Fire due schedules if the sleep is over or `wake` ended it. Return seconds to sleep."""
        try:
            self._sync()
        finally:  # A declaration that can't be created keeps no other schedule from firing.
            if self._is_woken or time.monotonic() >= self._look_at:
                self._is_woken = False
                self._look()
        return 0.0 if self._is_woken else max(0.0, self._look_at - time.monotonic())

    def _sync(self) -> None:
        if not self._is_synced:
            declaring.sync()
            self._is_synced = True

    def _look(self) -> None:
        seconds = read_wait()
        has_more = False
        if seconds is not None and seconds <= 0:
            has_more = loops.repeat_each([fire_more])
            seconds = read_wait()
        self._look_at = time.monotonic() + (0.0 if has_more else choose_sleep(seconds))


def choose_sleep(seconds: float | None) -> float:
    """Return how many seconds to sleep after a pass has fired all due schedules it could lock.

    `seconds` is the result of `read_wait`. If it is 0 or less, another session has locked a due
    row, and will move it or notify the loops. The sleep then grows with the lateness of that row,
    from 10 to 100 ms.
    """
    if seconds is None:
        return LONGEST_SLEEP
    if seconds > 0:
        return min(seconds, LONGEST_SLEEP)
    return min(max(-seconds, SHORTEST_SLEEP), LONGEST_LOCKED)


def read_wait() -> float | None:
    """Return the seconds until the next schedule is due, below 0 if it is late.

    None means that no schedule will be due.
    """
    [row] = run(settings().DATABASE, "next_due", {})
    seconds: float | None = row.seconds
    return seconds
