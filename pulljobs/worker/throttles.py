"""Throttles that the handlers of a process ask for, and the write of them to the database."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from django.db import DatabaseError

from pulljobs.engine.throttle import Throttle
from pulljobs.storage import throttles
from pulljobs.storage.transactions import is_wait

LOCKED_FOR: Final = 1.0
"""Seconds until the next attempt, if another transaction has locked the row of a consumer."""


def _write(using: str, seconds: Mapping[Throttle, float]) -> None:
    """Write throttles, each with the seconds that are left of it.

    The throttle of a key holds back its whole consumer if the consumer's keys take no turns.
    """
    of_keys = {
        (each.consumer_id, each.key): left for each, left in seconds.items() if each.key is not None
    }
    if of_keys:
        throttles.throttle_keys(using, of_keys)
    if whole := {each.consumer_id: left for each, left in seconds.items() if each.key is None}:
        throttles.throttle(using, whole)


class Throttles:
    """Throttles of consumers and keys: handlers ask for them, and the flusher writes them.

    A throttle that is not written when the process dies is lost, as the outcome of its job is.
    """

    def __init__(self, on_asked: Callable[[], None]) -> None:
        """`on_asked` is called when there is a throttle to write, in the thread of the handler."""
        self._on_asked = on_asked
        self._known: dict[int, Throttle] = {}
        self._asked: deque[Throttle] = deque()
        self._next_at = 0.0

    def get(self, consumer_id: int) -> Throttle:
        """Return the throttle of a consumer. Only the fetcher's thread calls this."""
        known = self._known.get(consumer_id)
        if known is None:
            known = self._known[consumer_id] = Throttle(consumer_id, on_asked=self._note)
        return known

    def write(self, using: str) -> None:
        """Write the throttles that handlers asked for. If a row is locked, a later call does it."""
        if not self._asked or time.monotonic() < self._next_at:
            return
        asked, now = list(self._asked), time.monotonic()
        ends = {throttle: throttle.unwritten_until for throttle in asked}
        try:
            _write(using, {throttle: end - now for throttle, end in ends.items() if end > now})
        except DatabaseError as error:
            if not is_wait(error):
                raise
            self._next_at = time.monotonic() + LOCKED_FOR
            return
        for throttle, end in ends.items():
            throttle.note_written(end)
        for _throttle in asked:
            self._asked.popleft()

    def _note(self, throttle: Throttle) -> None:
        self._asked.append(throttle)
        self._on_asked()
