"""Where a claim enters the index, so that it does not wade through what was claimed before.

A floor is a position (available_at, id) of one priority below which nothing is left to claim. What
comes back to the queue becomes available now or later, so above every floor; only what a
transaction writes that is still open can turn up below one. Two facts of PostgreSQL keep that
exact:

- Whoever makes a job available has its transaction id before it reads the clock. So what
  transactions with an id above that of an earlier claim write is available after the start of
  that claim. The claims of the last moments (`_Mark`) thus bound what is still open, and floors
  stay below that bound: a few milliseconds behind.
- A transaction that stays open longer than PATIENCE would hold the floors down. It is set aside
  as a straggler, and when a later snapshot shows it ended, what lies between its own bound and the
  floors is looked through once more, in slices.

A job that a walk had to skip because somebody had it locked is `passed` in claim.sql, which
reports the position before it. To look for such jobs takes a fifth of a large claim's time; while
such claims are full they go on without it, and what they walked is looked through once more after
PATIENCE, or as soon as a claim is not full.

All state is in memory: a process that knows nothing starts at the head of the index.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

PATIENCE: Final = timedelta(seconds=1)
MARK_SPACING: Final = timedelta(milliseconds=10)
MANY_PRIORITIES: Final = 64
FIRST_SLICE: Final = timedelta(seconds=1)
SMALLEST_SLICE: Final = timedelta(milliseconds=100)
_ABOVE_ALL: Final = 32_768
_BELOW_ALL: Final = -32_769
_BEGINNING: Final = datetime.min.replace(tzinfo=UTC)


class Position(NamedTuple):
    available_at: datetime
    id: int


class Snapshot(NamedTuple):
    """What `pg_current_snapshot()` tells: ids from `ceiling` on and the open ones are invisible."""

    ceiling: int
    open: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> "Snapshot":
        _floor, ceiling, running = text.split(":")
        return cls(
            int(ceiling), frozenset(map(int, running.split(","))) if running else frozenset()
        )

    def shows_ended(self, xid: int) -> bool:
        return xid < self.ceiling and xid not in self.open


class Entry(NamedTuple):
    """Parameters of claim.sql."""

    priorities: list[int]
    floor_ats: list[datetime]
    floor_ids: list[int]
    gap_tops: list[int]
    gap_bottoms: list[int]
    until: datetime | None

    @property
    def is_level(self) -> bool:
        """It goes on in the one priority there is, as far as known."""
        return len(self.priorities) == 1 and self.until is None and self.floor_ats[0] > _BEGINNING


class _Mark(NamedTuple):
    xid: int
    started_at: datetime


@dataclass(slots=True)
class Floors:
    """The floors of one consumer in one process; not for more than one thread."""

    floors: dict[int, Position] = field(default_factory=dict)
    marks: deque[_Mark] = field(default_factory=deque)
    stragglers: dict[int, datetime] = field(default_factory=dict)
    below: datetime | None = None
    """From where there is something to look through again."""
    slice: timedelta = FIRST_SLICE
    passed: datetime | None = None
    """From where there was a job below that somebody had locked: look again, but not at once."""
    passed_at: datetime = _BEGINNING
    unsure: datetime | None = None
    """From where claims went on that did not look whether they left one behind."""
    unsure_at: datetime = _BEGINNING

    def entry_above(self) -> Entry:
        """Where a claim starts that goes on from the last one."""
        return self._entry(dict(self.floors), until=None)

    def entry_below(self) -> Entry:
        """Where a claim starts that looks through the next slice below the floors."""
        start = self.below or _BEGINNING
        lowered = {
            priority: min(floor, Position(start, 0)) for priority, floor in self.floors.items()
        }
        # Not beyond the floors: what waits there is no news, and would be walked from down here.
        return self._entry(lowered, until=min(start + self.slice, self._highest(start)))

    def _entry(self, starts: dict[int, Position], until: datetime | None) -> Entry:
        priorities = sorted(starts, reverse=True)
        return Entry(
            priorities,
            [starts[priority].available_at for priority in priorities],
            [starts[priority].id for priority in priorities],
            [_ABOVE_ALL, *priorities],
            [*priorities, _BELOW_ALL],
            until,
        )

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
        """Take in what a claim at the floors saw; `reached` has every priority that it walked.

        `sure`: it looked for what it left behind; `full`: it got all that it wanted.
        """
        if len(reached) > MANY_PRIORITIES or (
            self.marks and started_at < self.marks[-1].started_at
        ):
            self.forget()
        self._set_aside(started_at, snapshot)
        bound = self._bound(min(snapshot.open - self.stragglers.keys(), default=snapshot.ceiling))
        if not sure:
            self._doubt(started_at, reached)
        for priority, position in reached.items():
            known = self.floors.get(priority, Position(_BEGINNING, 0))
            safe = min(position or known, Position(bound, 0))
            self.floors[priority] = max(known, safe)
        if xid is not None:
            self._mark(_Mark(xid, started_at))
        self._return_to_ended(snapshot)
        self._return_to_passed(started_at)
        if not full or started_at - self.unsure_at > PATIENCE:
            self._return_to_unsure()

    def learn_below(
        self, *, started_at: datetime, full: bool, passed: bool, took: timedelta
    ) -> None:
        """Move on after a claim of a slice; slices grow while they are quick."""
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
        """For who looks through all of it at once: take them down to what is below, if anything."""
        if self.below is None:
            return False
        start = Position(self.below, 0)
        self.floors = {priority: min(floor, start) for priority, floor in self.floors.items()}
        self.below = None
        return True

    def forget(self) -> None:
        """Start at the head again: after a new connection, or a step of the clock."""
        self.floors.clear()
        self.marks.clear()
        self.stragglers.clear()
        self.below, self.slice, self.passed, self.unsure = None, FIRST_SLICE, None, None

    def _highest(self, default: datetime) -> datetime:
        return max((floor.available_at for floor in self.floors.values()), default=default)

    def _bound(self, xid: int) -> datetime:
        """Nothing that this transaction or a later one writes is available before that."""
        earlier = (mark.started_at for mark in reversed(self.marks) if mark.xid < xid)
        return next(earlier, _BEGINNING)

    def _set_aside(self, started_at: datetime, snapshot: Snapshot) -> None:
        oldest = self.marks[0].started_at if self.marks else started_at
        for xid in snapshot.open - self.stragglers.keys():
            bound = self._bound(xid)
            if started_at - max(bound, oldest) > PATIENCE:
                self.stragglers[xid] = bound

    def _mark(self, mark: _Mark) -> None:
        if not self.marks or mark.started_at - self.marks[-1].started_at >= MARK_SPACING:
            self.marks.append(mark)
        while len(self.marks) > 2 and mark.started_at - self.marks[1].started_at > 2 * PATIENCE:
            self.marks.popleft()

    def _return_to_ended(self, snapshot: Snapshot) -> None:
        for xid in [xid for xid in self.stragglers if snapshot.shows_ended(xid)]:
            bound = self.stragglers.pop(xid)
            if bound == _BEGINNING:
                self.floors.clear()
            else:
                self.below = min(self.below or bound, bound)

    def _return_to_passed(self, started_at: datetime) -> None:
        if self.passed is not None and started_at - self.passed_at > PATIENCE:
            self.below = min(self.below or self.passed, self.passed)
            self.passed = None

    def _doubt(self, started_at: datetime, walked: Iterable[int]) -> None:
        starts = [
            self.floors[priority].available_at for priority in walked if priority in self.floors
        ]
        if starts and self.unsure is None:
            self.unsure, self.unsure_at = min(starts), started_at

    def _return_to_unsure(self) -> None:
        if self.unsure is not None:
            self.below = min(self.below or self.unsure, self.unsure)
            self.unsure = None
