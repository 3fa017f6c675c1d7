"""Listing of a consumer's queued jobs, for the route queued-jobs.

Its cost must not depend on the index entries that settled jobs have left behind. So a listing
enters the claim index where the listing before found the first queued job. These low-water marks
are like those of claims, and each process has its own. Where a job may have become available below
them, the listing reads again before it answers, so that it omits no committed job.
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
"""Largest number of consumers whose marks a process keeps."""
LOWEST: Final = -32_769


def queued(consumer_id: int, wanted: int, after: Place | None = None) -> list[WaitingJob]:
    """Return at most `wanted` ready jobs: the highest priority first, then the longest ready.

    Claims take them in this order, unless keys take turns. The list begins after the job at
    `after`, the last of the page before. With None it begins with the first job.
    """
    using = settings().DATABASE
    if connections[using].in_atomic_block:
        # The transaction may see rows that it rolls back: no marks are learned from them.
        return protocol.queued(
            using, consumer_id, wanted, _entry_after(LowWaterMarks(), after)
        ).jobs
    return _listing_of(using, consumer_id).list_jobs(wanted, after)


@dataclass(slots=True)
class ConsumerListing:
    """Reader of one consumer's queued jobs, with the low-water marks that this process knows."""

    using: str
    consumer_id: int
    _marks: LowWaterMarks = field(default_factory=LowWaterMarks)
    _server: datetime | None = None
    _watch: Watch = field(default_factory=Watch)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def list_jobs(self, wanted: int, after: Place | None) -> list[WaitingJob]:
        """Return at most `wanted` ready jobs in the order of `queued`, behind `after` if given."""
        with self._lock:
            while True:
                entry, asked = _entry_after(self._marks, after), time.monotonic()
                listed = protocol.queued(self.using, self.consumer_id, wanted, entry)
                may_omit = self._learn(listed, after, asked)
                if not may_omit:
                    return listed.jobs

    def _learn(self, listed: Listed, after: Place | None, asked: float) -> bool:
        """Raise or lower the marks by what a listing has read since the monotonic time `asked`.

        Return True if the listing may omit a job, because a mark was too high or is not valid.
        """
        if self._note_server(listed, asked) and self._marks.positions:
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

    def _note_server(self, listed: Listed, asked: float) -> bool:
        """Return True at the first listing, or after a restart or a clock set back in PostgreSQL.

        No earlier mark is valid then. The start of the server is stored for the next call.
        """
        at, answered = listed.started_at, time.monotonic()
        is_set_back = self._watch.observe(at, asked=asked, answered=answered)
        before, self._server = self._server, listed.server_started_at
        return is_set_back or before != self._server


@lru_cache(REMEMBERED)
def _listing_of(using: str, consumer_id: int) -> ConsumerListing:
    return ConsumerListing(using, consumer_id)


def _entry_after(marks: LowWaterMarks, after: Place | None) -> Entry:
    if after is None:
        return marks.entry_above()
    position = Position(after.available_at, after.id)
    starts = {priority: at for priority, at in marks.positions.items() if priority < after.priority}
    starts[after.priority] = max(position, marks.positions.get(after.priority, position))
    priorities = sorted(starts, reverse=True)
    return Entry(
        priorities,
        [starts[priority].available_at for priority in priorities],
        [starts[priority].id for priority in priorities],
        priorities,
        [*priorities[1:], LOWEST],
        None,
    )
