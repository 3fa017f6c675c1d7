"""A process with low-water marks never leaves an available job behind for ever.

The history of a database as a state machine: transactions take ids, read the clock, write and end
in any order, jobs get locked and let go, while one process claims by `LowWaterMarks`.
`Database.walk` is a model of the statement that claims, claim.sql.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, rule

from pulljobs.engine.low_water_marks import (
    MANY_PRIORITIES,
    PATIENCE,
    Entry,
    LowWaterMarks,
    Position,
    Snapshot,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
MILLISECONDS = st.sampled_from([0, 1, 3, 11, 40, 300, 1_100, 2_500])
PRIORITIES = st.sampled_from([0, 0, 0, 1, 7])


@dataclass
class Job:
    id: int
    priority: int
    available_at: datetime
    writer: int
    locked: bool = False

    @property
    def position(self) -> Position:
        return Position(self.available_at, self.id)


@dataclass
class Walked:
    taken: list[Job]
    reached: dict[int, Position | None]
    passed: bool
    sure: bool = True


@dataclass
class Database:
    now: datetime = START
    next_xid: int = 100
    next_id: int = 1
    open: set[int] = field(default_factory=set)
    jobs: list[Job] = field(default_factory=list)
    """All QUEUED jobs, including those of open transactions."""

    def begin(self) -> int:
        self.next_xid += 1
        self.open.add(self.next_xid - 1)
        return self.next_xid - 1

    def write(self, xid: int, priority: int, delay: timedelta) -> None:
        self.jobs.append(Job(self.next_id, priority, self.now + delay, xid))
        self.next_id += 1

    def roll_back(self, xid: int) -> None:
        self.open.discard(xid)
        self.jobs = [job for job in self.jobs if job.writer != xid]

    def visible(self) -> list[Job]:
        return sorted(
            (job for job in self.jobs if job.writer not in self.open), key=lambda job: job.position
        )

    def walk(self, entry: Entry, wanted: int) -> Walked:
        head = Position(datetime.min.replace(tzinfo=UTC), 0)
        starts = {job.priority: head for job in self.visible()}
        marks = map(Position, entry.mark_ats, entry.mark_ids)
        starts |= dict(zip(entry.priorities, marks, strict=True))
        top = self.now if entry.until is None else min(entry.until, self.now)
        taken: list[Job] = []
        passed, reached = False, {}
        is_level = entry.is_level and len(starts) == 1
        for priority in sorted(starts, reverse=True):
            due = [
                job
                for job in self.visible()
                if job.priority == priority
                and job.position > starts[priority]
                and job.available_at <= top
            ]
            mine = [job for job in due if not job.locked][: wanted - len(taken)]
            last = mine[-1].position if mine else starts[priority]
            left = [job for job in due if job.locked and (entry.until or job.position < last)]
            if is_level and len(mine) == wanted:  # as claim_level.sql, large and full
                return Walked(mine, {priority: last}, passed=False, sure=False)
            before = Position(left[0].available_at, left[0].id - 1) if left else last
            reached[priority] = before if mine else None
            passed |= bool(left)
            taken += mine
        return Walked(taken, reached, passed)


@dataclass
class Claimer:
    """Model of a process that claims (`Puller`), on the model of the database."""

    database: Database
    marks: LowWaterMarks = field(default_factory=LowWaterMarks)

    def claim(self, wanted: int) -> list[Job]:
        if self.marks.below is not None:
            walked, started_at, _xid, _snapshot = self._run(self.marks.entry_below(), wanted)
            self.marks.learn_below(
                started_at=started_at,
                full=len(walked.taken) == wanted,
                passed=walked.passed,
                took=timedelta(),
            )
            if walked.taken:
                return walked.taken
        walked, started_at, xid, snapshot = self._run(self.marks.entry_above(), wanted)
        self.marks.learn(
            started_at=started_at,
            snapshot=snapshot,
            xid=xid,
            reached=walked.reached,
            sure=walked.sure,
            full=len(walked.taken) == wanted,
        )
        return walked.taken

    def _run(self, entry: Entry, wanted: int) -> tuple[Walked, datetime, int | None, Snapshot]:
        db = self.database
        snapshot = Snapshot(db.next_xid, frozenset(db.open))
        walked = db.walk(entry, wanted)
        assert all(job.available_at <= db.now for job in walked.taken)
        xid = None
        if walked.taken:
            xid = db.begin()
            db.open.discard(xid)
            db.jobs = [job for job in db.jobs if job not in walked.taken]
        return walked, db.now, xid, snapshot


class ClaimHistory(RuleBasedStateMachine):
    writers = Bundle("writers")

    def __init__(self) -> None:
        super().__init__()
        self.database = Database()
        self.claimer = Claimer(self.database)

    @rule(milliseconds=MILLISECONDS)
    def pass_time(self, milliseconds: int) -> None:
        self.database.now += timedelta(milliseconds=milliseconds)

    @rule(target=writers)
    def begin(self) -> int:
        return self.database.begin()

    @rule(writer=writers, priority=PRIORITIES, delay=MILLISECONDS)
    def write(self, writer: int, priority: int, delay: int) -> None:
        self.database.write(writer, priority, timedelta(milliseconds=delay))

    @rule(priority=PRIORITIES, jobs=st.integers(1, 4))
    def publish(self, priority: int, jobs: int) -> None:
        xid = self.database.begin()
        for _job in range(jobs):
            self.database.write(xid, priority, timedelta())
        self.database.open.discard(xid)

    @rule(writer=consumes(writers))
    def commit(self, writer: int) -> None:
        self.database.open.discard(writer)

    @rule(writer=consumes(writers))
    def roll_back(self, writer: int) -> None:
        self.database.roll_back(writer)

    @rule(place=st.integers(0, 5))
    def lock(self, place: int) -> None:
        for job in self.database.visible()[place : place + 1]:
            job.locked = True

    @rule()
    def let_go(self) -> None:
        for job in self.database.jobs:
            job.locked = False

    @rule(wanted=st.integers(1, 5))
    def claim(self, wanted: int) -> None:
        self.claimer.claim(wanted)

    @rule(rounds=st.integers(1, 8), step=MILLISECONDS)
    def work(self, rounds: int, step: int) -> None:
        for _round in range(rounds):
            self.publish(0, 2)
            self.pass_time(step)
            self.claimer.claim(4)

    def teardown(self) -> None:
        """Check that a few more claims take every job after the end of all transactions."""
        self.database.open.clear()
        self.let_go()
        self.pass_time(60_000)
        for _claim in range(200):
            self.claimer.claim(10)
            self.pass_time(200)
        assert self.database.jobs == []


TestHistory = ClaimHistory.TestCase
TestHistory.settings = settings(max_examples=100, stateful_step_count=60)


@pytest.fixture
def busy() -> Claimer:
    """Return a simulated process that has claimed for long, so its low-water mark is recent."""
    claimer = Claimer(Database())
    work(claimer, 30)
    return claimer


def work(claimer: Claimer, rounds: int, step: int = 20) -> None:
    for _round in range(rounds):
        xid = claimer.database.begin()
        claimer.database.write(xid, 0, timedelta())
        claimer.database.open.discard(xid)
        claimer.database.now += timedelta(milliseconds=step)
        assert claimer.claim(5)


def behind(claimer: Claimer) -> timedelta:
    return claimer.database.now - claimer.marks.positions[0].available_at


def test_a_low_water_mark_follows_the_clock(busy: Claimer) -> None:
    assert behind(busy) < timedelta(milliseconds=100)


def test_an_open_transaction_holds_the_mark_for_a_bounded_time_only(busy: Claimer) -> None:
    xid = busy.database.begin()
    work(busy, 20)
    assert behind(busy) >= timedelta(milliseconds=400)
    work(busy, 60)
    assert behind(busy) < timedelta(milliseconds=100)
    assert xid in busy.marks.stragglers


def test_what_a_straggler_wrote_is_found_within_a_few_claims_of_its_commit(busy: Claimer) -> None:
    xid = busy.database.begin()
    busy.database.write(xid, 0, timedelta())
    late = busy.database.jobs[-1]
    work(busy, 200)
    busy.database.open.discard(xid)
    late_jobs: list[Job] = []
    for _claim in range(10):
        late_jobs += busy.claim(5)
    assert late_jobs == [late]
    assert busy.marks.below is None


def test_what_full_claims_passed_is_found_once_one_is_not_full(busy: Claimer) -> None:
    [passed, *_others] = passing(busy)
    passed.locked = False
    assert busy.claim(5) == []
    assert busy.claim(5) == [passed]


def test_what_full_claims_passed_is_found_in_time_while_they_stay_full(busy: Claimer) -> None:
    [passed, *_others] = passing(busy)
    passed.locked = False
    for _round in range(60):
        publish(busy.database, 5)
        busy.database.now += timedelta(milliseconds=20)
        if passed in busy.claim(5):
            break
    assert passed not in busy.database.jobs
    assert behind(busy) < timedelta(milliseconds=100)


def passing(claimer: Claimer) -> list[Job]:
    """Publish jobs, lock the first and claim the others in full claims. Return all jobs."""
    publish(claimer.database, 11)
    made = claimer.database.jobs[-11:]
    made[0].locked = True
    for share in (made[1:6], made[6:]):
        claimer.database.now += timedelta(milliseconds=200)
        assert claimer.claim(5) == share
    return made


def publish(database: Database, jobs: int) -> None:
    xid = database.begin()
    for _job in range(jobs):
        database.write(xid, 0, timedelta())
    database.open.discard(xid)


def test_a_search_below_ends_at_the_marks(busy: Claimer) -> None:
    """A search below the low-water marks ends at them, and leaves later jobs to other claims."""
    busy.marks.below = busy.database.now - timedelta(seconds=0.5)
    mark = busy.marks.positions[0]
    publish(busy.database, 20)
    entry = busy.marks.entry_below()
    assert entry.until == mark.available_at
    assert busy.claim(5)
    assert busy.marks.below is None


def test_marks_and_stragglers_do_not_pile_up(busy: Claimer) -> None:
    work(busy, 3_000, step=11)
    assert len(busy.marks.claims) < 2 * PATIENCE / timedelta(milliseconds=10) + 3
    xids = [busy.database.begin() for _ in range(10)]
    work(busy, 200)
    assert set(busy.marks.stragglers) == set(xids)
    busy.database.open.clear()
    work(busy, 3)
    assert not busy.marks.stragglers


def test_a_step_of_the_clock_back_starts_over(busy: Claimer) -> None:
    busy.database.now -= timedelta(seconds=30)
    busy.claim(5)
    xid = busy.database.begin()
    busy.database.write(xid, 0, timedelta())
    busy.database.open.discard(xid)
    assert len(busy.claim(5)) == 1


def test_more_priorities_than_can_be_kept_are_forgotten() -> None:
    claimer = Claimer(Database())
    for _round in range(3):
        for priority in range(MANY_PRIORITIES + 5):
            xid = claimer.database.begin()
            claimer.database.write(xid, priority, timedelta())
            claimer.database.open.discard(xid)
        assert len(claimer.claim(1_000)) == MANY_PRIORITIES + 5
    assert len(claimer.marks.positions) <= MANY_PRIORITIES + 5


@pytest.mark.parametrize(
    ("text", "ended", "running"),
    [("10:20:", [5, 15, 19], [20, 25]), ("10:20:12,15", [11, 19], [12, 15, 20])],
)
def test_snapshots(text: str, ended: list[int], running: list[int]) -> None:
    """A snapshot shows which transactions had ended when it was taken."""
    snapshot = Snapshot.parse(text)
    assert all(map(snapshot.shows_ended, ended))
    assert not any(map(snapshot.shows_ended, running))
