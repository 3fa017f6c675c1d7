"""Every state a job is in x every state that is asked for, with and without IncrementalTimeout."""

from datetime import timedelta
from uuid import UUID

import pytest
from django.utils.dateparse import parse_datetime

from pulljobs.models import ArchivedJob, Job, Lease
from pulljobs.states import State
from tests.api.caller import Caller, Subscription, job_in
from tests.sessions import contents

MOVES = {
    (State.QUEUED, State.INFLIGHT),
    (State.DEAD, State.INFLIGHT),
    (State.INFLIGHT, State.DELIVERED),
    (State.INFLIGHT, State.DEAD),
}
MATRIX = [(source, target) for source in State for target in State]


@pytest.mark.parametrize(("source", "target"), MATRIX)
def test_without_a_timeout(
    source: State, target: State, census: Subscription, caller: Caller
) -> None:
    """A job POST for an allowed transition or the current state gets 202, and any other 400."""
    job_id = job_in(source, census)
    before = contents()
    answer = caller.move(job_id, target)
    assert answer.status_code == (202 if source == target or (source, target) in MOVES else 400)
    if (source, target) in MOVES:
        assert _state(job_id) == target
    else:
        assert contents() == before
    assert bool(answer.content) == (answer.status_code == 400)


@pytest.mark.parametrize(("source", "target"), MATRIX)
def test_with_a_timeout(source: State, target: State, census: Subscription, caller: Caller) -> None:
    """A request with a timeout that takes the job gets 202. Others get 400 and change nothing."""
    job_id = job_in(source, census)
    before = contents()
    answer = caller.move(job_id, target, IncrementalTimeout=10)
    taking = target == State.INFLIGHT and source in (State.QUEUED, State.DEAD)
    assert answer.status_code == (202 if taking else 400)
    assert (contents() == before) != taking


@pytest.mark.parametrize(("source", "target"), MATRIX)
def test_a_timeout_of_0_counts_as_absent(
    source: State, target: State, census: Subscription, caller: Caller
) -> None:
    plain = caller.move(job_in(source, census), target)
    zero = caller.move(job_in(source, census), target, IncrementalTimeout=0)
    assert zero.status_code == plain.status_code


@pytest.mark.parametrize(("seconds", "lease_duration"), [(0, 32.25), (10, 42.25)])
@pytest.mark.parametrize("source", [State.QUEUED, State.DEAD])
def test_a_take_tells_its_lease(
    source: State, seconds: int, lease_duration: float, census: Subscription, caller: Caller
) -> None:
    """Headers give the lease token and the end of the lease, which IncrementalTimeout delays."""
    job_id = job_in(source, census)
    answer = caller.move(job_id, State.INFLIGHT, IncrementalTimeout=seconds)
    job, row = Job.objects.get(id=job_id), Lease.objects.get()
    assert UUID(answer["X-Broker-Lease-Token"]) == job.lease_token == row.lease_token
    assert answer["X-Broker-Lease-Expires-At"].endswith("Z")
    assert parse_datetime(answer["X-Broker-Lease-Expires-At"]) == row.leased_until
    assert row.leased_until - row.claimed_at == timedelta(seconds=lease_duration)
    assert job.retry_count == (1 if source == State.DEAD else 0)


def test_the_same_state_tells_no_token(census: Subscription, caller: Caller) -> None:
    """A request for INFLIGHT on a job in flight does not get the lease token of the holder."""
    answer = caller.move(job_in(State.INFLIGHT, census), State.INFLIGHT)
    assert "X-Broker-Lease-Token" not in answer


def test_settling_writes_the_archive_under_the_lease(census: Subscription, caller: Caller) -> None:
    job_id = job_in(State.INFLIGHT, census)
    token = Job.objects.get(id=job_id).lease_token
    caller.move(job_id, State.DEAD)
    archived = ArchivedJob.objects.get(job_id=job_id)
    assert (archived.state, archived.reason, archived.lease_token) == ("DEAD", "rejected", token)


def _state(job_id: int) -> str:
    live = Job.objects.filter(id=job_id).first()
    return live.state if live else ArchivedJob.objects.get(job_id=job_id).state
