"""State that a process keeps for a consumer between its claims."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from pulljobs.engine.claiming import guarded
from pulljobs.engine.claiming.guarded import Guards, Request
from pulljobs.engine.claiming.rows import Claimed, Terms
from pulljobs.engine.clocks import Watch
from pulljobs.engine.low_water_marks import Entry, LowWaterMarks, Position
from pulljobs.engine.sql import Session

Look = Callable[[Entry], Claimed]
"""Function that claims from an entry on."""


@dataclass(slots=True)
class Claimer:
    """Low-water marks and guards of one consumer, for one thread."""

    consumer_id: int
    marks: LowWaterMarks = field(default_factory=LowWaterMarks)
    ring: LowWaterMarks = field(default_factory=LowWaterMarks)
    """Marks of the turns of keys, by rank, in place of those of jobs by priority."""
    watch: Watch = field(default_factory=Watch)
    guards: Guards = field(default_factory=Guards)
    job_cost: float = 1.0
    """Average cost of the jobs of the last claim."""

    def claim(self, session: Session, wanted: int, terms: Terms, entry: Entry) -> Claimed:
        """Claim under the known guards. If the consumer has others, read them and try again."""
        while True:
            ring = self.ring.entry_above()
            request = Request(self.consumer_id, wanted, terms, entry, ring, self.job_cost)
            claimed = guarded.claim(session, request, self.guards)
            if claimed is not None:
                self.job_cost = claimed.job_cost
                return claimed
            guards = guarded.read_guards(session, self.consumer_id)
            if guards.by_turn != self.guards.by_turn:
                # Below the marks jobs may wait that have a turn, or that were passed over.
                self.forget()
                entry = self.marks.entry_above()
            self.guards = guards

    def walk(self, wanted: int, look: Look) -> Claimed:
        """Claim what turned up below the low-water marks, else go on from the marks."""
        if self.marks.below is not None:
            claimed = self._below(wanted, look)
            if claimed.taken is not None:
                return claimed._replace(more=True)  # This claim has not looked above the marks.
        asked = time.monotonic()
        claimed = look(self.marks.entry_above())
        if self.watch.is_set_back(claimed.started_at, asked=asked, answered=time.monotonic()):
            self.forget()
        self._learn_ring(claimed)
        self.marks.learn(
            started_at=claimed.started_at,
            snapshot=claimed.snapshot,
            xid=claimed.xid,
            reached=claimed.reached,
            sure=claimed.sure,
            full=len(claimed.jobs) == wanted,
        )
        return claimed

    def forget(self) -> None:
        """Start at the heads of the indexes again, after a new connection or a rollback."""
        self.marks.forget()
        self.ring.forget()

    def _learn_ring(self, claimed: Claimed) -> None:
        """Raise the marks of the ring up to the first turns that a claim by key saw.

        A turn is given later than the transaction that gives it gets its id, or stays where it was.
        So the rules of the marks of jobs hold for them.
        """
        if (seen := claimed.ring) is None:
            return
        self.ring.learn(
            started_at=seen.started_at,
            snapshot=seen.snapshot,
            xid=seen.xid,
            reached={
                rank: Position(first or seen.started_at, 0)
                for rank, first in seen.first_turns.items()
            },
        )
        self.ring.lower()

    def _below(self, wanted: int, look: Look) -> Claimed:
        started = time.monotonic()
        claimed = look(self.marks.entry_below())
        self._learn_ring(claimed)
        took = timedelta(seconds=time.monotonic() - started)
        is_cut = claimed.refusal is not None or len(claimed.jobs) == wanted
        self.marks.learn_below(
            started_at=claimed.started_at,
            full=claimed.more or (is_cut and not claimed.by_turn),
            passed=claimed.passed,
            took=took,
        )
        return claimed
