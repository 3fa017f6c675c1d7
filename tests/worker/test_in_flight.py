"""In-flight jobs, and the leases that are due for renewal."""

import time
from uuid import UUID

import pytest

from pulljobs.claimed_jobs import Grant
from pulljobs.engine.outcomes import Held
from pulljobs.worker.in_flight import InFlightJobs
from tests.worker.claiming import unclaimed

ROOMY = 10**9
"""Limit of payload bytes that no test reaches."""


def test_room_is_the_limit_less_the_jobs_in_flight() -> None:
    in_flight = InFlightJobs(3, ROOMY)
    jobs = [unclaimed(number) for number in (1, 2)]
    in_flight.add(jobs)
    assert (in_flight.room(0), len(in_flight)) == (1, 2)
    in_flight.drop([jobs[0], unclaimed(99)])
    assert (in_flight.room(0), len(in_flight)) == (2, 1)
    assert in_flight.lease_tokens() == {jobs[1].held.lease_token}


def test_room_is_what_fits_into_the_limit_of_payload_bytes() -> None:
    in_flight = InFlightJobs(100, limit_bytes=1000)
    jobs = [unclaimed(number, payload=bytes(300)) for number in (1, 2)]
    in_flight.add(jobs)
    assert [in_flight.room(size) for size in (0, 3, 100, 300, 500)] == [98, 98, 4, 1, 0]
    in_flight.drop([jobs[0], unclaimed(99, payload=bytes(9))])
    assert [in_flight.room(size) for size in (100, 800)] == [7, 0]


def test_a_job_that_is_larger_than_the_limit_is_claimed_when_no_other_is_in_flight() -> None:
    assert InFlightJobs(100, limit_bytes=1000).room(5000) == 1


@pytest.mark.parametrize("payload", [1000, 1500])
def test_a_consumer_whose_sizes_are_not_known_waits_while_the_limit_is_reached(
    payload: int,
) -> None:
    """While the limit of bytes is reached, a consumer with unknown payload sizes gets no jobs."""
    in_flight = InFlightJobs(100, limit_bytes=1000)
    in_flight.add([unclaimed(payload=bytes(payload))])
    assert in_flight.room(0.0) == 0


def test_a_job_that_was_claimed_again_stays_when_its_lost_run_is_dropped() -> None:
    """The end of a lost run does not drop the newer claim of the same job by the process."""
    first, second = unclaimed(1), unclaimed(1)
    first.held = Held(1, UUID(int=2))
    in_flight = InFlightJobs(9, ROOMY)
    in_flight.add([first])
    in_flight.add([second])
    in_flight.drop([first])
    assert len(in_flight) == 1
    assert in_flight.lease_tokens() == {second.held.lease_token}


def test_a_lease_is_due_for_renewal_after_a_third_of_its_duration() -> None:
    now = time.monotonic()
    fresh, due = (
        unclaimed(number, lease_duration=3000, claimed_at=now - ago)
        for number, ago in ((1, 900), (2, 1100))
    )
    in_flight = InFlightJobs(9, ROOMY)
    in_flight.add([fresh, due])
    assert in_flight.due_for_renewal() == [due]
    due.extend(now)
    assert in_flight.due_for_renewal() == []


def test_a_settled_job_needs_no_lease() -> None:
    job = unclaimed(claimed_at=time.monotonic() - 100)
    in_flight = InFlightJobs(1, ROOMY)
    in_flight.add([job])
    assert (job.lost, in_flight.due_for_renewal()) == (True, [job])
    job.mark_settled()
    assert not job.lost
    assert in_flight.due_for_renewal() == []


def test_a_job_that_is_settled_during_its_renewal_needs_no_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def settling(grant: Grant, since: float, hard_end: float) -> tuple[float, float]:
        job.mark_settled()
        return times(grant, since, hard_end)

    times, job = Grant.times, unclaimed()
    monkeypatch.setattr(Grant, "times", settling)
    job.extend(time.monotonic() - 100)
    in_flight = InFlightJobs(1, ROOMY)
    in_flight.add([job])
    assert not job.lost
    assert in_flight.due_for_renewal() == []
