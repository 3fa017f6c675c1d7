"""Number of jobs that a pool claims ahead, from the measured run times of their handlers."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from pulljobs.engine.run_times import RunTime
from pulljobs.handlers import ClaimedJob
from pulljobs.worker import job_pool, runs
from pulljobs.worker.job_pool import ClaimAhead
from pulljobs.worker.runs import CancelReason, HandlerRuns
from tests.worker.claiming import unclaimed

FOREVER = float("inf")


def run_time(*seconds: float) -> RunTime:
    measured = RunTime()
    for each in seconds:
        measured.note(each)
    return measured


class PoolByHand:
    """Pool whose slots begin and end jobs by a clock that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, slots: int = 4) -> None:
        self.now, self._runs = 1000.0, HandlerRuns()
        self.ahead = ClaimAhead(range(slots), self._runs)
        self._waiting: list[ClaimedJob] = []
        self._running: dict[int, ClaimedJob] = {}
        for module in (job_pool, runs):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))

    def room(self, handler: RunTime, *, later: float = 0.0) -> int:
        self.now += later
        return self.ahead.room(handler, len(self._waiting))

    def take(self, handler: RunTime, count: int) -> None:
        jobs = [unclaimed(number, run_time=handler) for number in range(count)]
        self.ahead.queue(jobs)
        self._waiting += jobs

    def begin(self, *slots: int) -> None:
        for slot in slots:
            job = self._running[slot] = self._waiting.pop(0)
            self._runs.begin(job, self._runs.slot(slot, lambda run: None), self.now)

    def cancel(self, slot: int) -> None:
        [run] = [run for run in self._runs.current() if run.slot == slot]
        assert run.cancel(CancelReason.TIMED_OUT)

    def end(self, *slots: int, later: float = 0.0) -> None:
        self.now += later
        for slot in slots:
            self._runs.end(self._running.pop(slot))


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> PoolByHand:
    return PoolByHand(monkeypatch)


@pytest.fixture
def two_pools(monkeypatch: pytest.MonkeyPatch) -> Callable[[], PoolByHand]:
    return lambda: PoolByHand(monkeypatch, 2)


def test_no_more_jobs_than_slots_are_claimed_while_the_run_time_is_unknown(
    pool: PoolByHand,
) -> None:
    unknown = RunTime()
    assert pool.room(unknown) == 4
    pool.take(unknown, 3)
    assert pool.room(unknown) == 1
    pool.begin(0, 1, 2)
    assert pool.room(unknown, later=60) == 1, "however long they run"


def test_slow_jobs_that_end_together_let_no_job_wait(pool: PoolByHand) -> None:
    slow = RunTime()
    pool.take(slow, 4)
    pool.begin(0, 1, 2, 3)
    pool.end(0, 1, later=2)
    assert pool.room(slow, later=0.05) == 4, "two slots are idle, and two runs nearly over"
    assert pool.room(slow, later=0.6) == 2, "they take longer"
    pool.end(2, 3)
    assert pool.room(slow, later=0.2) == 4
    pool.take(slow, 4)
    assert pool.room(slow) == 0


def test_quick_jobs_fill_the_time_ahead_of_all_slots(pool: PoolByHand) -> None:
    quick = run_time(0.01)
    assert pool.room(quick) == 200
    pool.take(quick, 150)
    assert pool.room(quick) == 50
    pool.take(quick, 50)
    assert pool.room(quick) == 0
    pool.begin(0, 1, 2, 3)
    pool.end(0, 1, 2, 3, later=0.01)
    assert pool.room(quick) == 4


def test_a_slot_that_is_expected_to_come_free_in_time_is_claimed_for(pool: PoolByHand) -> None:
    slow = run_time(2.0)
    pool.take(slow, 4)
    pool.begin(0, 1, 2, 3)
    assert pool.room(slow, later=1.4) == 0
    assert pool.room(slow, later=0.2) == 4, "all end in 0.4 s"
    pool.take(slow, 4)
    assert pool.room(slow) == 0


def test_a_run_far_beyond_its_expected_time_frees_no_slot(pool: PoolByHand) -> None:
    quick = run_time(0.01)
    pool.take(quick, 3)
    pool.begin(0, 1, 2)
    assert pool.room(quick, later=10) == 50, "those of the idle slot"


def test_quick_jobs_are_not_claimed_behind_slow_ones(pool: PoolByHand) -> None:
    slow, quick = run_time(10.0), run_time(0.01)
    pool.take(slow, 3)
    assert pool.room(quick) == 50, "the slow jobs take three slots"
    pool.take(slow, 1)
    assert pool.room(quick) == 0
    pool.begin(0, 1, 2, 3)
    assert pool.room(quick) == 0


def test_slow_jobs_get_a_slot_behind_waiting_quick_ones(
    two_pools: Callable[[], PoolByHand],
) -> None:
    """A slow job gets a slot behind quick jobs, unless these together take half a second."""
    pool, slow, quick = two_pools(), run_time(10.0), run_time(0.01)
    pool.take(quick, 40)
    assert pool.room(slow) == 2
    pool.take(quick, 60)
    assert pool.room(slow) == 0, "the quick ones take half a second"


def test_jobs_that_have_begun_do_not_count_as_waiting(pool: PoolByHand) -> None:
    slow, quick = run_time(10.0), run_time(0.01)
    pool.take(slow, 2)
    pool.take(quick, 10)
    pool.begin(0, 1)
    assert pool.room(quick) == 90


def test_a_cancelled_run_that_goes_on_keeps_its_slot(pool: PoolByHand) -> None:
    slow = run_time(10.0)
    pool.take(slow, 1)
    pool.begin(0)
    pool.cancel(0)
    assert pool.room(slow, later=1) == 3
    pool.end(0)
    assert pool.room(slow) == 4


def test_quick_runs_are_a_sample_and_slow_ones_are_all_noted(pool: PoolByHand) -> None:
    handler = RunTime()
    pool.take(handler, 3)
    pool.begin(0, 1)
    pool.end(0, later=2)
    assert handler.expected == 2
    pool.end(1, later=0.0005)
    assert handler.expected == 2, "not noted, so soon after the first"
    pool.begin(2)
    pool.end(2, later=3)
    assert handler.expected > 2


def test_an_uneven_run_time_is_expected_with_a_margin() -> None:
    assert RunTime().expected == FOREVER
    assert run_time(*[0.2] * 5).expected == pytest.approx(0.2)
    assert run_time(0.01, 2.0).expected > 1.0, "a single slow run makes careful"
    assert run_time(2.0, *[0.01] * 60).expected < 0.02, "and is forgotten"


def test_claims_of_fair_keys_are_as_large_as_the_process_is_quick(pool: PoolByHand) -> None:
    """With fair shares, no more jobs wait than the process starts in `ahead` seconds."""
    fair, other = run_time(0.001), run_time(0.001)
    fair.ahead = 0.02
    assert pool.room(fair) > 70, "the pace is not known yet"
    pool.take(fair, 50)
    for _job in range(40):
        pool.begin(0)
        pool.end(0, later=0.001)
    assert 8 < pool.room(fair) < 12, "20 start in so many milliseconds, and 10 wait"
    assert pool.room(other) > 1_000
    for _job in range(10):
        pool.begin(0)
        pool.end(0, later=0.0001)
    assert pool.room(fair, later=0.0001) > 50, "a pool that ran out of jobs was quicker"
