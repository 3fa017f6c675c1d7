"""What the worker knows of its own jobs: which it holds, whose leases are due, how far ahead."""

import time
from uuid import UUID

from pulljobs.outcomes import Held
from pulljobs.worker import lanes
from pulljobs.worker.held import Holdings
from pulljobs.worker.lanes import Pace
from tests.sessions import wait_until
from tests.worker.claiming import unclaimed


def test_room_is_what_is_not_held() -> None:
    holdings = Holdings(3)
    jobs = [unclaimed(number) for number in (1, 2)]
    holdings.add(jobs)
    assert (holdings.room, len(holdings)) == (1, 2)
    holdings.drop([jobs[0], unclaimed(99)])
    assert (holdings.room, len(holdings)) == (2, 1)
    assert holdings.tokens() == {jobs[1].held.token}


def test_job_claimed_again_is_not_dropped_with_its_lost_self() -> None:
    """A lost job's handler may end after its second claim by the same process."""
    first, second = unclaimed(1), unclaimed(1)
    first.held = Held(1, UUID(int=2))
    holdings = Holdings(9)
    holdings.add([first])
    holdings.add([second])
    holdings.drop([first])
    assert len(holdings) == 1
    assert holdings.tokens() == {second.held.token}


def test_leases_are_due_after_a_third_of_their_time() -> None:
    now = time.monotonic()
    fresh, due = unclaimed(1, claimed_at=now - 9), unclaimed(2, claimed_at=now - 11)
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


def test_few_jobs_are_ahead_at_first_and_more_at_a_high_rate() -> None:
    pace = Pace(8)
    assert pace.ahead(0) == 8
    start = time.monotonic()
    done = 0

    def is_fast() -> bool:
        nonlocal done
        done = int((time.monotonic() - start) * 10_000)
        return pace.ahead(done) > 1000

    wait_until(is_fast)
    assert pace.ahead(done) < 10_000


def test_slow_jobs_that_end_together_are_no_high_rate() -> None:
    pace = Pace(8)
    start = time.monotonic()
    pace.ahead(0)
    wait_until(lambda: time.monotonic() - start > 1.5 * lanes.PACE_WINDOW)
    assert pace.ahead(0) == 8
    assert pace.ahead(8) == 8, "eight in one instant"
    wait_until(lambda: time.monotonic() - start > 3 * lanes.PACE_WINDOW)
    assert pace.ahead(8) <= 8 / lanes.PACE_WINDOW * lanes.WORK_AHEAD
