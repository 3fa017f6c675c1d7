"""What a process remembers of a consumer between its claims."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from pulljobs.engine.claiming import guarded
from pulljobs.engine.claiming.guarded import Guards
from pulljobs.engine.claiming.rows import Claimed, Terms
from pulljobs.engine.clocks import Watch
from pulljobs.engine.low_water_marks import Entry, LowWaterMarks
from pulljobs.engine.sql import Session

Look = Callable[[Entry], Claimed]
"""Claims from there on."""


@dataclass(slots=True)
class Claimer:
    """Where the last claim of a consumer ended, and what to mind; not for more than one thread."""

    consumer_id: int
    marks: LowWaterMarks = field(default_factory=LowWaterMarks)
    watch: Watch = field(default_factory=Watch)
    guards: Guards = field(default_factory=Guards)

    def claim(self, session: Session, wanted: int, terms: Terms, entry: Entry) -> Claimed:
        """What claims have to mind is seen by trying, for it may change at any time."""
        while True:
            claimed = guarded.claim(session, self.consumer_id, wanted, terms, entry, self.guards)
            if claimed is not None:
                return claimed
            self.guards = guarded.read_guards(session, self.consumer_id)

    def walk(self, wanted: int, look: Look) -> Claimed:
        """A claim that goes on where the last one ended, after what turned up behind it."""
        if self.marks.below is not None:
            claimed = self._below(wanted, look)
            if claimed.taken is not None:
                return claimed._replace(more=True)  # Above the floors nobody has looked yet.
        asked = time.monotonic()
        claimed = look(self.marks.entry_above())
        if self.watch.is_set_back(claimed.started_at, asked=asked, answered=time.monotonic()):
            self.marks.forget()
        self.marks.learn(
            started_at=claimed.started_at,
            snapshot=claimed.snapshot,
            xid=claimed.xid,
            reached=claimed.reached,
            sure=claimed.sure,
            full=len(claimed.jobs) == wanted,
        )
        return claimed

    def _below(self, wanted: int, look: Look) -> Claimed:
        started = time.monotonic()
        claimed = look(self.marks.entry_below())
        took = timedelta(seconds=time.monotonic() - started)
        self.marks.learn_below(
            started_at=claimed.started_at,
            full=claimed.refusal is not None or claimed.more or len(claimed.jobs) == wanted,
            passed=claimed.passed,
            took=took,
        )
        return claimed
