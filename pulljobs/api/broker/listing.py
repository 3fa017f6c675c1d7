"""What waits for a consumer, listed without taking it, however much was taken before.

A listing enters the index where the one before found the first job that waits: its floors are like
those of claims, each process its own. Where something may have turned up below, it
looks again before it answers, so nothing that was committed is left out.
"""

import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Final

from django.db import connections

from pulljobs.conf import settings
from pulljobs.engine.clocks import Watch
from pulljobs.engine.low_water_marks import Entry, LowWaterMarks, Position
from pulljobs.storage import protocol
from pulljobs.storage.protocol import Listed, Place, WaitingJob

REMEMBERED: Final = 10_000
"""Consumers of one process, at the most."""
LOWEST: Final = -32_769


def queued(consumer_id: int, wanted: int, after: Place | None = None) -> list[WaitingJob]:
    """The next jobs that are due, in the order in which claims take them, behind that place."""
    using = settings().DATABASE
    if connections[using].in_atomic_block:
        # It may see what is rolled back: nothing to remember.
        return protocol.queued(using, consumer_id, wanted, _behind(LowWaterMarks(), after)).jobs
    return _queue(using, consumer_id).list(wanted, after)


@dataclass(slots=True)
class Queue:
    using: str
    consumer_id: int
    _marks: LowWaterMarks = field(default_factory=LowWaterMarks)
    _server: datetime | None = None
    _watch: Watch = field(default_factory=Watch)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def list(self, wanted: int, after: Place | None) -> list[WaitingJob]:
        with self._lock:
            while True:
                entry, asked = _behind(self._marks, after), time.monotonic()
                listed = protocol.queued(self.using, self.consumer_id, wanted, entry)
                if not self._missed_some(listed, after, asked):
                    return listed.jobs

    def _missed_some(self, listed: Listed, after: Place | None, asked: float) -> bool:
        """Take in what a listing saw; whether it may have begun above something that waits."""
        if self._is_void(listed, asked) and self._marks.positions:
            self._marks.forget()
            return True
        reached: dict[int, Position | None] = dict(listed.reached)
        if after is not None:
            reached.pop(after.priority, None)
        self._marks.learn(
            started_at=listed.started_at,
            snapshot=listed.snapshot,
            xid=listed.next_xid - 1,
            reached=reached,
        )
        cleared = bool(reached) and not self._marks.positions
        return self._marks.lower() or cleared

    def _is_void(self, listed: Listed, asked: float) -> bool:
        """Whether what is known is of another server, or of a clock that was set back since."""
        at, answered = listed.started_at, time.monotonic()
        is_set_back = self._watch.is_set_back(at, asked=asked, answered=answered)
        before, self._server = self._server, listed.server_started_at
        return is_set_back or before != self._server


@lru_cache(REMEMBERED)
def _queue(using: str, consumer_id: int) -> Queue:
    return Queue(using, consumer_id)


def _behind(marks: LowWaterMarks, after: Place | None) -> Entry:
    if after is None:
        return marks.entry_above()
    place = Position(after.available_at, after.id)
    starts = {priority: at for priority, at in marks.positions.items() if priority < after.priority}
    starts[after.priority] = max(place, marks.positions.get(after.priority, place))
    priorities = sorted(starts, reverse=True)
    return Entry(
        priorities,
        [starts[priority].available_at for priority in priorities],
        [starts[priority].id for priority in priorities],
        priorities,
        [*priorities[1:], LOWEST],
        None,
    )
