"""Low-water marks: where a claim enters the claim index, to skip what was claimed before.

A low-water mark is a position (available_at, id) in one priority below which no job is left to
claim. A job that returns to the queue becomes available now or later, so it lies above every mark.
Only a transaction that is still open can add a job below one. Two facts of PostgreSQL keep this
exact:

- A transaction that makes a job available has its transaction id before it reads the clock. So the
  jobs of transactions with an id above that of an earlier claim are available after the start of
  that claim. The recent claims (`_PastClaim`) therefore bound what open transactions can add, and
  marks stay below that bound: a few milliseconds behind the present.
- A transaction that stays open longer than PATIENCE would hold the marks down. It is set aside as
  a straggler. When a later snapshot shows that it ended, the range between its own bound and the
  marks is scanned once more, in slices.

claim.sql reports the position before the first job that it skipped because another session had it
locked (`passed`). Looking for such jobs takes a fifth of the time of a large claim. While claims
get as many jobs as they want they may skip that step (then they are not `sure`), and the range that
they walked is scanned once more after PATIENCE, or as soon as a claim gets fewer.

All state is in memory: a process that knows no marks starts at the head of the index.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

PATIENCE: Final = timedelta(seconds=1)
CLAIM_SPACING: Final = timedelta(milliseconds=10)
MANY_PRIORITIES: Final = 64
FIRST_SLICE: Final = timedelta(seconds=1)
SMALLEST_SLICE: Final = timedelta(milliseconds=100)
_ABOVE_ALL: Final = 32_768
_BELOW_ALL: Final = -32_769
BEGINNING: Final = datetime.min.replace(tzinfo=UTC)


class Position(NamedTuple):
    """Position of a job in the claim order of its priority."""

    available_at: datetime
    id: int


class Snapshot(NamedTuple):
    """Result of `pg_current_snapshot()`: it shows no transaction in `open` or from `ceiling` on."""

    ceiling: int
    open: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> "Snapshot":
        _lowest, ceiling, running = text.split(":")
        return cls(
            int(ceiling), frozenset(map(int, running.split(","))) if running else frozenset()
        )

    def shows_ended(self, xid: int) -> bool:
        """Return True if the transaction had ended when the snapshot was taken."""
        return xid < self.ceiling and xid not in self.open


class Entry(NamedTuple):
    """Parameters of claim.sql that say where to enter the claim index."""

    priorities: list[int]
    """Known priorities, the highest first. `mark_ats` and `mark_ids` are their marks."""
    mark_ats: list[datetime]
    mark_ids: list[int]
    gap_tops: list[int]
    """Upper ends of the ranges around the known priorities, which are searched for others."""
    gap_bottoms: list[int]
    until: datetime | None
    """Time of `available_at` at which the claim ends, or None to go on to the present."""

    @property
    def is_level(self) -> bool:
        """True if one priority and its mark are known, so that claim_level.sql can be used."""
        return len(self.priorities) == 1 and self.until is None and self.mark_ats[0] > BEGINNING

    def beyond(self, reached: Mapping[int, Position | None]) -> "Entry":
        """Return the entry for a claim that goes on behind these positions, given by priority.

        A priority whose position is None stays where it is in this entry.
        """
        positions = map(Position, self.mark_ats, self.mark_ids)
        starts = dict(zip(self.priorities, positions, strict=True))
        for priority, position in reached.items():
            starts[priority] = position or starts.get(priority, Position(BEGINNING, 0))
        return _make_entry(starts, self.until)


def _make_entry(starts: Mapping[int, Position], until: datetime | None) -> Entry:
    priorities = sorted(starts, reverse=True)
    return Entry(
        priorities,
        [starts[priority].available_at for priority in priorities],
        [starts[priority].id for priority in priorities],
        [_ABOVE_ALL, *priorities],
        [*priorities, _BELOW_ALL],
        until,
    )


class _PastClaim(NamedTuple):
    xid: int
    started_at: datetime


@dataclass(slots=True)
class LowWaterMarks:
    """Low-water marks of one consumer in one process. An instance belongs to one thread."""

    positions: dict[int, Position] = field(default_factory=dict)
    """Mark of each priority."""
    claims: deque[_PastClaim] = field(default_factory=deque)
    stragglers: dict[int, datetime] = field(default_factory=dict)
    """Times from which on long transactions may make jobs available, by transaction id."""
    below: datetime | None = None
    """Start of the range below the marks that has to be scanned again, or None if there is none."""
    slice: timedelta = FIRST_SLICE
    """Length of the time range, or slice, that the next claim below the marks scans."""
    passed: datetime | None = None
    """Start of the time range in which a job was skipped because it was locked."""
    passed_at: datetime = BEGINNING
    """Start of the claim that skipped it."""
    unsure: datetime | None = None
    """Start of the range that claims walked without looking for skipped jobs."""
    unsure_at: datetime = BEGINNING
    """Start of the first of these claims."""

    def entry_above(self) -> Entry:
        """Return the entry at the marks, for a claim that goes on where earlier claims ended."""
        return _make_entry(self.positions, until=None)

    def entry_below(self) -> Entry:
        """Return the entry of a claim that scans a time range below the marks for jobs left."""
        start = self.below or BEGINNING
        lowered = {
            priority: min(mark, Position(start, 0)) for priority, mark in self.positions.items()
        }
        # Not beyond the marks: the next claim from there finds what lies above them.
        return _make_entry(lowered, until=min(start + self.slice, self._highest(start)))

    def learn(
        self,
        *,
        started_at: datetime,
        snapshot: Snapshot,
        xid: int | None,
        reached: dict[int, Position | None],
        sure: bool = True,
        full: bool = False,
    ) -> None:
        """Raise the marks by the result of a claim that entered at them.

        The arguments but `full` are fields of `Claimed`. `reached` has every priority that the
        claim walked, with None if its mark stays. `full` is True if the claim got as many jobs as
        it wanted.
        """
        if len(reached) > MANY_PRIORITIES or (
            self.claims and started_at < self.claims[-1].started_at
        ):
            self.forget()
        self._set_aside(started_at, snapshot)
        bound = self._bound(min(snapshot.open - self.stragglers.keys(), default=snapshot.ceiling))
        if not sure:
            self._doubt(started_at, reached)
        for priority, position in reached.items():
            known = self.positions.get(priority, Position(BEGINNING, 0))
            safe = min(position or known, Position(bound, 0))
            self.positions[priority] = max(known, safe)
        if xid is not None:
            self._remember(_PastClaim(xid, started_at))
        self._return_to_ended(snapshot)
        self._return_to_passed(started_at)
        if not full or started_at - self.unsure_at > PATIENCE:
            self._return_to_unsure()

    def learn_below(
        self, *, started_at: datetime, full: bool, passed: bool, took: timedelta
    ) -> None:
        """Note that a claim scanned a slice (time range) below the marks. Go on to the next slice.

        The claim took the time `took`: slices grow while claims are quick. With `full` the slice
        may have further jobs and is scanned again. `passed` means that the claim skipped locked
        jobs.
        """
        if self.below is None or full:
            return
        if passed:
            self.passed, self.passed_at = self.passed or self.below, started_at
        self.below += self.slice
        quick = took < timedelta(milliseconds=5)
        self.slice = self.slice * 2 if quick else max(self.slice / 2, SMALLEST_SLICE)
        if self.below >= self._highest(self.below):
            self.below, self.slice = None, FIRST_SLICE

    def lower(self) -> bool:
        """Lower all marks to the start of the range below them where jobs may be left.

        So the next claim walks the whole range, which need not be scanned in slices. Return False
        if there is no such range.
        """
        if self.below is None:
            return False
        start = Position(self.below, 0)
        self.positions = {priority: min(mark, start) for priority, mark in self.positions.items()}
        self.below = None
        return True

    def forget(self) -> None:
        """Drop all state, so that the next claim starts at the head of the index."""
        self.positions.clear()
        self.claims.clear()
        self.stragglers.clear()
        self.below, self.slice, self.passed, self.unsure = None, FIRST_SLICE, None, None

    def _highest(self, default: datetime) -> datetime:
        return max((mark.available_at for mark in self.positions.values()), default=default)

    def _bound(self, xid: int) -> datetime:
        """Return a lower bound for the due times of jobs by transactions from the id `xid` on."""
        earlier = (claim.started_at for claim in reversed(self.claims) if claim.xid < xid)
        return next(earlier, BEGINNING)

    def _set_aside(self, started_at: datetime, snapshot: Snapshot) -> None:
        oldest = self.claims[0].started_at if self.claims else started_at
        for xid in snapshot.open - self.stragglers.keys():
            bound = self._bound(xid)
            if started_at - max(bound, oldest) > PATIENCE:
                self.stragglers[xid] = bound

    def _remember(self, claim: _PastClaim) -> None:
        if not self.claims or claim.started_at - self.claims[-1].started_at >= CLAIM_SPACING:
            self.claims.append(claim)
        while len(self.claims) > 2 and claim.started_at - self.claims[1].started_at > 2 * PATIENCE:
            self.claims.popleft()

    def _return_to_ended(self, snapshot: Snapshot) -> None:
        for xid in [xid for xid in self.stragglers if snapshot.shows_ended(xid)]:
            bound = self.stragglers.pop(xid)
            if bound == BEGINNING:
                self.positions.clear()
            else:
                self.below = min(self.below or bound, bound)

    def _return_to_passed(self, started_at: datetime) -> None:
        if self.passed is not None and started_at - self.passed_at > PATIENCE:
            self.below = min(self.below or self.passed, self.passed)
            self.passed = None

    def _doubt(self, started_at: datetime, walked: Iterable[int]) -> None:
        starts = [
            self.positions[priority].available_at
            for priority in walked
            if priority in self.positions
        ]
        if starts and self.unsure is None:
            self.unsure, self.unsure_at = min(starts), started_at

    def _return_to_unsure(self) -> None:
        if self.unsure is not None:
            self.below = min(self.below or self.unsure, self.unsure)
            self.unsure = None
