"""Row of a process as a waiter of one consumer, by which publishers know to notify the process."""

import asyncio
import time
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from pulljobs.pulling import Puller
from pulljobs.storage import listen

if TYPE_CHECKING:
    from pulljobs.api.leases.long_poll.waiters import Waiters

PATIENCE: Final = timedelta(seconds=15)
"""Time after which publishers ignore the row of a waiter that was not written again."""


class WaiterRow:
    """Row of this process as a waiter of a consumer, with the number of its long polls.

    It exists while long polls wait. Only the event loop of the waiters uses this object.
    """

    def __init__(self, waiters: "Waiters", puller: Puller) -> None:
        self._waiters, self._puller = waiters, puller
        self.lock = asyncio.Lock()
        """Lock that is held while the row is written or deleted.

        Else the deletion could overtake the write for a new long poll, which would wait unnoticed.
        """
        self.most_waiting = 0
        """Largest number of long polls at a time since the last pass of `Waiters`.

        It is written into the row, because the number falls for moments whenever clients settle
        their jobs before they pull again.
        """
        self.registered = 0
        """Number of long polls in the row."""
        self.registered_until = 0.0
        """Monotonic time until which publishers heed the row, or 0 without a row."""

    @property
    def consumer_id(self) -> int:
        return self._puller.consumer.pk

    @property
    def counted(self) -> int:
        """Number of long polls to write into the row: `most_waiting`, at most `max_waiting`."""
        return min(self.most_waiting, self._puller.consumer.max_waiting)

    @property
    def is_miscounted(self) -> bool:
        """True if the row has a wrong number or expires soon, and no write of it runs."""
        if not self.registered_until or self.lock.locked():
            return False
        soon = time.monotonic() + PATIENCE.total_seconds() / 2
        return self.most_waiting != self.registered or self.registered_until < soon

    async def write(self) -> int:
        """Write the row, whose lock the caller holds. Return how many long polls wait elsewhere."""
        waiting, now = self.counted, time.monotonic()
        args = [self.consumer_id], self._waiters.node_id, PATIENCE, [waiting]
        write = partial(listen.wait, self._puller.using, *args)
        elsewhere = await self._waiters.run(write, claiming_for=self.consumer_id)
        self.note_written(waiting, now)
        return elsewhere[self.consumer_id]

    def note_written(self, waiting: int, at: float) -> None:
        """Note that the row was written with `waiting` long polls at the monotonic time `at`."""
        self.registered, self.registered_until = waiting, at + PATIENCE.total_seconds()

    async def delete_if_empty(self) -> None:
        """Delete the row if no long poll has waited since the last pass of `Waiters`."""
        async with self.lock:
            if self.registered_until and not self.most_waiting:
                self.registered, self.registered_until = 0, 0.0
                ids = [self.consumer_id]
                leave = partial(listen.leave, self._puller.using, ids, self._waiters.node_id)
                await self._waiters.run(leave, claiming_for=self.consumer_id)
