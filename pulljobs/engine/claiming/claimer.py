"""State that a process keeps for a consumer between its claims."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from pulljobs.engine.claiming import guarded
from pulljobs.engine.claiming.guarded import Fit, Guards, Request
from pulljobs.engine.claiming.rows import Claimed, Terms
from pulljobs.engine.clocks import Watch
from pulljobs.engine.low_water_marks import Entry, LowWaterMarks, Position
from pulljobs.engine.sql import Session

Look = Callable[[Entry], Claimed]
"""Function that makes one claim, which enters the claim index at this entry."""


@dataclass(slots=True)
class Claimer:
    """Low-water marks and known rules (guards) of one consumer, for use in one thread."""

    consumer_id: int
    marks: LowWaterMarks = field(default_factory=LowWaterMarks)
    ring: LowWaterMarks = field(default_factory=LowWaterMarks)
    """Low-water marks of the ring, the index of the turns of keys, by rank of the turns."""
    watch: Watch = field(default_factory=Watch)
    """Observer of the database's clock: low-water marks are void after it was set back."""
    guards: Guards = field(default_factory=Guards)
    job_cost: float = 1.0
    """Average cost of the jobs of the last claim."""

    def claim(
        self, session: Session, wanted: int, terms: Terms, entry: Entry, fit: Fit | None = None
    ) -> Claimed:
        """Claim up to `wanted` jobs by the known rules of the consumer (guards).

        If the claim finds that the rules have changed, read them and repeat the claim. `fit` calls
        the claim for fewer jobs again until they fit.
        """
        while True:
            ring = self.ring.entry_above()
            request = Request(self.consumer_id, wanted, terms, entry, ring, self.job_cost, fit)
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
        """Claim jobs that may be left below the low-water marks, or else jobs from the marks on.

        `look` claims up to `wanted` jobs from a position in the claim index. Its result moves the
        marks.
        """
        if self.marks.below is not None:
            claimed = self._below(wanted, look)
            if claimed.taken is not None:
                return claimed._replace(more=True)  # This claim has not looked above the marks.
        asked = time.monotonic()
        claimed = look(self.marks.entry_above())
        if self.watch.observe(claimed.started_at, asked=asked, answered=time.monotonic()):
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
        """Drop all low-water marks, so that the next claim enters the indexes at their heads."""
        self.marks.forget()
        self.ring.forget()

    def _learn_ring(self, claimed: Claimed) -> None:
        """Raise the low-water marks of the index of turns up to the first turns that a claim saw.

        `LowWaterMarks` serves for turns as well as for jobs, because a transaction that gives a
        turn has its id before it reads the clock for the time of the turn.
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
