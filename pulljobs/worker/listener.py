"""The listener: hears what publishers say and wakes the fetcher."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from pulljobs.storage.listen import Listener

PATIENCE: Final = timedelta(seconds=5)


class Wakeups:
    """Loop over one connection of its own; without it polling goes on."""

    def __init__(self, using: str, consumer_ids: frozenset[int], wake: Callable[[], None]) -> None:
        self._using, self._consumer_ids, self._wake = using, consumer_ids, wake
        self._listener: Listener | None = None

    def tick(self) -> float:
        if self._listener is None:
            self._listener = Listener(self._using)
            self._wake()  # For what was published before it listened.
        try:
            heard = self._listener.heard(PATIENCE)
        except Exception:
            self._listener.close()
            self._listener = None
            raise
        if heard & self._consumer_ids:
            self._wake()
        return 0
