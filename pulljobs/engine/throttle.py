"""Throttle of a consumer: the time until which no process may claim its jobs.

The time itself is in the consumer's row. This module has what one process knows about it: handlers
ask for a time, the flusher writes it, and the fetcher learns from its claims what other processes
wrote. Times are of the monotonic clock.
"""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pulljobs.errors import LONGEST_DELAY


def _do_nothing(throttle: "Throttle") -> None:
    """Do nothing: default of `Throttle.on_asked`, for tests of handlers without a worker."""


@dataclass(slots=True, eq=False)
class Throttle:
    """Throttle of one consumer, as one process knows it. Any thread may call its methods."""

    consumer_id: int = 0
    on_asked: Callable[["Throttle"], None] = _do_nothing
    """Function that is called when a time has to be written, in the thread of the handler."""
    until: float = 0.0
    """Time until which no job of the consumer starts here, or a time in the past."""
    key: str | None = None
    """Key whose jobs it holds back, or None for all jobs of the consumer."""
    unwritten_until: float = 0.0
    """Monotonic time that has to be written, or 0 if there is none."""
    _written_at: float = 0.0
    """Time at which the last write was committed."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _of_keys: dict[str, "Throttle"] = field(default_factory=dict)

    def of_key(self, key: str) -> "Throttle":
        """Return the throttle of one key of the consumer, and forget those that have ended."""
        now = time.monotonic()
        with self._lock:
            known = self._of_keys.items()
            self._of_keys = {
                each: throttle
                for each, throttle in known
                if throttle.is_unwritten or now < throttle.until
            }
            made = Throttle(self.consumer_id, self.on_asked, key=key)
            return self._of_keys.setdefault(key, made)

    def holds_back(self, key: str | None, now: float) -> bool:
        """Return True if no job of this key may start at the monotonic time `now`."""
        if now < self.until:
            return True
        of_key = self._of_keys.get(key or "") if self._of_keys else None
        return of_key is not None and now < of_key.until

    @property
    def is_unwritten(self) -> bool:
        """True while a throttle that a handler asked for is not in the database yet."""
        return self.unwritten_until > 0

    def ask(self, seconds: float, key: str | None = None) -> None:
        """Throttle the consumer, or only this key of it, for `seconds` from now on.

        A throttle that lasts longer stays, and so does any if `seconds` is not above 0.
        This process starts no job that is held back from now on. Other processes claim none after
        `on_asked` has had the time written to the database.
        """
        if key is not None:
            self.of_key(key).ask(seconds)
        elif seconds > 0:
            end = time.monotonic() + seconds
            with self._lock:
                self.unwritten_until = max(self.unwritten_until, end)
                self.until = max(self.until, end)
            self.on_asked(self)

    def note_written(self, end: float) -> None:
        """Note that a throttle until the monotonic time `end` is in the database now."""
        with self._lock:
            self._written_at = time.monotonic()
            if self.unwritten_until <= end:
                self.unwritten_until = 0.0

    def note_refused(self, seconds: float) -> None:
        """Note that a claim was refused, because the consumer is throttled for that long."""
        with self._lock:
            self.until = max(time.monotonic() + seconds, self.unwritten_until)

    @property
    def is_known(self) -> bool:
        """True if the consumer or one of its keys was throttled, and may be still."""
        return bool(self.until or self._of_keys)

    def note_claimed(self, since: float, keys: Iterable[str | None] = ()) -> None:
        """Note that a claim got jobs of these keys: the throttles of consumer and keys are over.

        A throttle that is not written yet, or was written after the claim was sent at the monotonic
        time `since`, goes on.
        """
        with self._lock:
            if not self.unwritten_until and self._written_at <= since:
                self.until = 0.0
            of_keys = [self._of_keys.get(key or "") for key in keys] if self._of_keys else []
        for of_key in filter(None, of_keys):
            of_key.note_claimed(since)


def seconds_of(wait: timedelta | datetime) -> float:
    """Return the seconds from now to the end of a throttle, given as a duration or an aware time.

    A time is compared with this process's clock, and the result is negative for a past one. Raise
    TypeError or ValueError for other values, and for more than 100 years.
    """
    if isinstance(wait, datetime):
        if wait.utcoffset() is None:
            raise ValueError(
                f"A throttle needs an aware datetime, not {wait!r}: give it a time zone."
            )
        wait -= datetime.now(UTC)
    if not isinstance(wait, timedelta):
        raise TypeError(f"A throttle needs a timedelta or a datetime, not {wait!r}.")
    if wait > LONGEST_DELAY:
        raise ValueError(f"A throttle lasts at most 100 years, not {wait}.")
    return wait.total_seconds()
