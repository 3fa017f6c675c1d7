"""What the worker knows of its own jobs: which it holds, whose leases are due, how far ahead."""

import time
from types import SimpleNamespace
from uuid import UUID

import pytest

from pulljobs.engine.outcomes import Held
from pulljobs.handlers import Grant
from pulljobs.worker import job_pool
from pulljobs.worker.in_flight import Holdings
from pulljobs.worker.job_pool import PACE_WINDOW, WORK_AHEAD, Pace
from tests.worker.claiming import unclaimed


def test_room_is_what_is_not_held() -> None:
    holdings = Holdings(3)
    jobs = [unclaimed(number) for number in (1, 2)]
    holdings.add(jobs)
    assert (holdings.room, len(holdings)) == (1, 2)
    holdings.drop([jobs[0], unclaimed(99)])
    assert (holdings.room, len(holdings)) == (2, 1)
    assert holdings.tokens() == {jobs[1].held.lease_token}


def test_job_claimed_again_is_not_dropped_with_its_lost_self() -> None:
    """A lost job's handler may end after its second claim by the same process."""
    first, second = unclaimed(1), unclaimed(1)
    first.held = Held(1, UUID(int=2))
    holdings = Holdings(9)
    holdings.add([first])
    holdings.add([second])
    holdings.drop([first])
    assert len(holdings) == 1
    assert holdings.tokens() == {second.held.lease_token}


def test_leases_are_due_after_a_third_of_their_time() -> None:
    now = time.monotonic()
    fresh, due = (
        unclaimed(number, lease_duration=3000, claimed_at=now - ago)
        for number, ago in ((1, 900), (2, 1100))
    )
    holdings = Holdings(9)
    holdings.add([fresh, due])
    assert holdings.due() == [due]
    due.extend(now)
    assert holdings.due() == []


def test_settled_job_needs_no_lease() -> None:
    job = unclaimed(claimed_at=time.monotonic() - 100)
    holdings = Holdings(1)
    holdings.add([job])
    assert (job.lost, holdings.due()) == (True, [job])
    job.mark_settled()
    assert not job.lost
    assert holdings.due() == []


def test_job_that_is_settled_amid_its_renewal_needs_no_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def settling(grant: Grant, since: float, hard_end: float) -> tuple[float, float]:
        job.mark_settled()
        return times(grant, since, hard_end)

    times, job = Grant.times, unclaimed()
    monkeypatch.setattr(Grant, "times", settling)
    job.extend(time.monotonic() - 100)
    holdings = Holdings(1)
    holdings.add([job])
    assert not job.lost
    assert holdings.due() == []


class Paced:
    """A pace by a clock that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now, self._pace = 0.0, Pace(8, _at=0.0)
        monkeypatch.setattr(job_pool, "time", SimpleNamespace(monotonic=lambda: self._now))

    def ahead(self, done: int, *, later: float = 0.0) -> int:
        self._now += later
        return self._pace.ahead(done)


def test_few_jobs_are_ahead_at_first_and_more_at_a_high_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paced = Paced(monkeypatch)
    assert paced.ahead(0) == 8
    assert [paced.ahead(number * 2500, later=0.25) for number in range(1, 4)] == [
        int(10_000 * WORK_AHEAD)
    ] * 3


def test_slow_jobs_that_end_together_are_no_high_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    paced = Paced(monkeypatch)
    assert paced.ahead(0) == 8
    assert paced.ahead(0, later=1.5 * PACE_WINDOW) == 8
    assert paced.ahead(8) == 0, "eight in one instant"
    assert paced.ahead(8, later=1.5 * PACE_WINDOW) <= 8 / PACE_WINDOW * WORK_AHEAD


def test_no_job_waits_for_slow_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    paced = Paced(monkeypatch)
    assert [paced.ahead(number, later=60) for number in range(1, 4)] == [0, 0, 0]
