"""Listener: receives the notifications of publishers and wakes the fetcher."""

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Final

from pulljobs.loops import give_way
from pulljobs.storage.listen import Listener

PATIENCE: Final = timedelta(seconds=1)
"""Length of a pass. It is short, because a loop that stays in a pass counts as hung."""


class WakeupListener:
    """Loop that waits for notifications on its own connection. Without it the worker only polls.

    Notifications about lost leases are only hints, so `check_leases` asks the database.
    """

    def __init__(
        self,
        using: str,
        wake: Callable[[Collection[int] | None], None],
        check_leases: Callable[[Collection[int]], None],
        wakers: Mapping[str, Callable[[], None]],
    ) -> None:
        """`wake` gets ids of consumers with jobs, or None for all. `check_leases` gets job ids.

        `wakers` has functions of other loops by the PostgreSQL channel that calls them.
        """
        self._using, self._wake, self._check_leases = using, wake, check_leases
        self._wakers = wakers
        self._listener: Listener | None = None

    def tick(self) -> float:
        """Wait up to a second for a notification and pass it on. Connect first if need be.

        Return 0, because the next pass follows at once.
        """
        if self._listener is None:
            self._listener = Listener(self._using, self._check_leases, self._wakers)
            self._wake(None)  # Jobs may have been published before it listened.
            for wake in self._wakers.values():
                wake()
        try:
            consumer_ids = self._listener.receive(PATIENCE)
        except Exception:
            self._listener.close()
            self._listener = None
            raise
        if consumer_ids:
            self._wake(consumer_ids)
            give_way()
        return 0
