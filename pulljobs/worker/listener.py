"""The listener: hears what publishers say and wakes the fetcher."""

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Final

from pulljobs.storage.listen import Listener

PATIENCE: Final = timedelta(seconds=1)
"""Of one pass: short, for a loop that stays in a pass is taken for hung."""


class Wakeups:
    """Loop over one connection of its own; without it polling goes on.

    What it hears of jobs that were taken away is for `doubt`, which asks before it believes that.
    """

    def __init__(
        self,
        using: str,
        wake: Callable[[Collection[int] | None], None],
        doubt: Callable[[Collection[int]], None],
    ) -> None:
        self._using, self._wake, self._doubt = using, wake, doubt
        self._listener: Listener | None = None

    def tick(self) -> float:
        if self._listener is None:
            self._listener = Listener(self._using, self._doubt)
            self._wake(None)  # For what was published before it listened.
        try:
            heard = self._listener.heard(PATIENCE)
        except Exception:
            self._listener.close()
            self._listener = None
            raise
        if heard:
            self._wake(heard)
        return 0
