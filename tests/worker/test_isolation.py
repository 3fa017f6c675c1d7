"""Isolation of crash suspects in a worker without loops."""

from collections.abc import Sequence

import pytest

from pulljobs import operating
from pulljobs.engine import outcomes
from pulljobs.engine.run_times import RunTime
from pulljobs.handlers import ClaimedJob
from pulljobs.worker import isolation
from pulljobs.worker.in_flight import InFlightJobs
from pulljobs.worker.isolation import Isolation
from pulljobs.worker.result_buffer import ResultBuffer
from tests.sessions import session
from tests.worker.claiming import claim_of

pytestmark = pytest.mark.django_db(transaction=True)


class TakingPool:
    """Job pool that only remembers the jobs that it got."""

    reports_room = False

    def __init__(self) -> None:
        self.taken: list[ClaimedJob] = []

    def room(self, run_time: RunTime) -> int:
        return 1

    def take(self, jobs: Sequence[ClaimedJob]) -> None:
        self.taken += jobs


class IsolationBench:
    """Claimed suspects that wait to run alone."""

    def __init__(self, count: int = 1) -> None:
        self.suspects = claim_of(print, count)
        self.buffer, self.pool = ResultBuffer(), TakingPool()
        in_flight = InFlightJobs(1000, limit_bytes=10**9)
        in_flight.add(self.suspects)
        self.isolation = Isolation(in_flight, self.buffer)
        self.isolation.add(self.pool, self.suspects)


def test_a_suspect_whose_lease_is_locked_for_a_moment_starts_later() -> None:
    bench = IsolationBench()
    with session() as other:
        other.execute("SELECT FROM pulljobs_lease FOR UPDATE")
        bench.isolation.start_next()
    assert (bench.pool.taken, list(bench.buffer.results)) == ([], [])
    bench.isolation.start_next()
    assert bench.pool.taken == bench.suspects


def test_a_suspect_that_is_lost_does_not_start() -> None:
    bench = IsolationBench()
    [lost] = bench.suspects
    operating.kill([lost.id], by="test")
    bench.isolation.start_next()
    assert (bench.pool.taken, list(bench.buffer.results)) == ([], [(lost, None)])


def test_a_suspect_that_is_about_to_start_is_not_released_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that stops releases the other suspects while the start of one is being recorded."""
    bench = IsolationBench(2)
    first, second = bench.suspects

    def stop(job: ClaimedJob) -> bool:
        bench.isolation.release_waiting()
        return True

    monkeypatch.setattr(isolation, "record_start", stop)
    bench.isolation.start_next()
    assert bench.pool.taken == [first]
    assert list(bench.buffer.results) == [(second, outcomes.release(second.held))]
