"""Races of two processes: one wins, the other learns that it lost, nothing is written twice.

The interleavings are built with a second session that stops after its statement. Only the tests
with many threads depend on chance.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction

from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.models import ArchivedJob, Job, Lease
from pulljobs.pulling import Puller
from pulljobs.states import Event, State
from pulljobs.storage import jobs, leases
from pulljobs.storage.rows import Taken
from tests.factories import (
    LEASE,
    MAX_LEASE,
    USING,
    ConsumerFactory,
    JobFactory,
    MadeJob,
    claimed,
    published,
)
from tests.sessions import (
    Session,
    Thread,
    at_once,
    blocked_by,
    contents,
    lock_timeout,
    pass_time,
    query,
    run,
    session,
    states,
    wait_until,
)

pytestmark = pytest.mark.django_db(transaction=True)
KILL = {"states": ["QUEUED", "INFLIGHT"], "reason": "killed", "error": None}


@pytest.fixture(autouse=True)
def _fail_rather_than_hang(db: None) -> Iterator[None]:
    with lock_timeout():
        yield


def settle_in(other: Session, held: Held, event: Event) -> list[tuple[Any, ...]]:
    """Run the statement `finish` for one job in another session, which does not commit yet."""
    params = {
        "job_ids": [held.job_id],
        "lease_tokens": [held.lease_token],
        "events": [str(event)],
        "reasons": [None],
        "delays": [None],
        "errors": [None],
        "results": [None],
        "started": [None],
        "max_retries": [None],
        "run_clock": 0.0,
        "run_begins": [None],
        "run_seconds": [None],
    }
    return run(other, "finish", params)


def expire_in(other: Session) -> None:
    """Expire the ended leases in another session, as the reaper does, without a commit."""
    for lease_id, token, job_ids, *_known in run(other, "expired", {"leases": 10}):
        for job_id in job_ids:
            settle_in(other, Held(job_id, token), Event.EXPIRE)
        run(other, "end_leases", {"lease_ids": [lease_id]})


def renew_in(other: Session, held: Held) -> list[tuple[Any, ...]]:
    params = {
        "job_ids": [held.job_id],
        "lease_tokens": [held.lease_token],
        "lease_duration": None,
        "running": None,
    }
    return run(other, "renew", params)


def while_open(other: Session, work: Callable[[], Any]) -> Any:
    """Start `work`, commit the other session once `work` waits for it, and return its result."""
    waiting = Thread(work)
    wait_until(lambda: blocked_by(other))
    other.commit()
    return waiting.result()


def overdue() -> MadeJob:
    job: MadeJob = JobFactory.create(state=State.INFLIGHT)
    pass_time()
    return job


def test_a_renewal_before_the_reaper_keeps_the_job() -> None:
    job = overdue()
    with session() as other:
        assert renew_in(other, job.held)
        assert jobs.reap(USING, 10) is None
        other.commit()
    assert jobs.reap(USING, 10) is None
    assert states() == {job.id: "INFLIGHT"}


def test_a_renewal_after_the_reaper_reports_the_job_as_lost() -> None:
    job = overdue()
    with session() as other:
        expire_in(other)
        assert leases.renew(USING, [job.held]) == {}
        assert leases.still_held(USING, [job.held]) == {job.held}
        other.commit()
    assert leases.renew(USING, [job.held]) == {}
    assert leases.still_held(USING, [job.held]) == set()
    assert states() == {job.id: "QUEUED"}


def test_an_outcome_before_the_reaper_stands() -> None:
    """A job whose outcome comes first stays settled. The other job of its lease expires."""
    consumer = ConsumerFactory.create()
    published(consumer, 2)
    delivered, late = claimed(consumer, 2)
    pass_time()
    with session() as other:
        assert settle_in(other, delivered, Event.DELIVER)
        finished = jobs.reap(USING, 10)
        other.commit()
    assert finished is not None
    assert finished.states == {late.job_id: State.QUEUED}
    assert [row.state for row in ArchivedJob.objects.all()] == ["DELIVERED"]
    assert states() == {late.job_id: "QUEUED"}


def test_an_outcome_of_a_whole_lease_is_passed_by_the_reaper() -> None:
    job = overdue()
    with session() as other:
        assert settle_in(other, job.held, Event.DELIVER)
        assert jobs.reap(USING, 10) is None
        other.commit()
    assert [row.state for row in ArchivedJob.objects.all()] == ["DELIVERED"]
    assert not Lease.objects.exists()


def test_an_outcome_after_the_reaper_is_lost() -> None:
    job = overdue()
    with session() as other:
        expire_in(other)
        finished = while_open(other, lambda: jobs.finish(USING, [outcomes.deliver(job.held)]))
    assert (finished.states, finished.lost) == ({}, [job.id])
    assert states() == {job.id: "QUEUED"}
    assert not ArchivedJob.objects.exists()


@pytest.mark.parametrize("first", [Event.DELIVER, Event.REJECT, Event.RETRY, Event.RELEASE])
@pytest.mark.parametrize("second", [Event.DELIVER, Event.REJECT, Event.RETRY, Event.RELEASE])
def test_of_two_outcomes_of_one_lease_the_first_stands(first: Event, second: Event) -> None:
    job = JobFactory.create(state=State.INFLIGHT)
    with session() as other:
        [(_id, state, *_freed)] = settle_in(other, job.held, first)
        finished = while_open(
            other, lambda: jobs.finish(USING, [Settlement(job.held, second, error="x")])
        )
    same = first == second and state != State.QUEUED
    assert finished.lost == ([] if same else [job.id])
    assert ArchivedJob.objects.count() == (state != State.QUEUED)
    assert states() == ({} if state == State.DELIVERED else {job.id: state})


def test_of_two_revivers_one_gets_the_job() -> None:
    job = JobFactory.create(state=State.DEAD)
    with session() as other:
        params = {
            "consumer_id": job.consumer.pk,
            "job_id": job.id,
            "source": "DEAD",
            "node_id": None,
            "via": "post",
            "lease_duration": LEASE,
            "max_lease": MAX_LEASE,
            "incremental_timeout": None,
            "guarded": False,
        }
        [(token, *_others)] = run(other, "take", params)
        assert while_open(other, lambda: revive(job)) is None
    row = Job.objects.get()
    assert (row.lease_token, row.retry_count, row.deliveries) == (token, 1, 2)
    assert [lease.lease_token for lease in Lease.objects.all()] == [token]


def revive(job: MadeJob) -> UUID | None:
    taken = jobs.take(
        USING,
        job.consumer.pk,
        job.id,
        source=State.DEAD,
        lease_duration=LEASE,
        max_lease=MAX_LEASE,
        via=Lease.Via.POST,
    )
    return taken.lease_token if isinstance(taken, Taken) else None


def test_of_many_revivers_one_gets_the_job() -> None:
    job = JobFactory.create(state=State.DEAD)
    tokens = at_once(8, lambda _number: revive(job))
    assert Counter(token is None for token in tokens) == {True: 7, False: 1}
    assert Job.objects.get().lease_token in tokens


def test_a_kill_before_an_outcome_stands() -> None:
    job = JobFactory.create(state=State.INFLIGHT)
    with session() as other:
        run(other, "kill", KILL | {"job_ids": [job.id]})
        finished = while_open(other, lambda: jobs.finish(USING, [outcomes.deliver(job.held)]))
    assert finished.lost == [job.id]
    assert [row.reason for row in ArchivedJob.objects.all()] == ["killed"]


def test_an_outcome_before_a_kill_stands() -> None:
    job = JobFactory.create(state=State.INFLIGHT)
    with session() as other:
        settle_in(other, job.held, Event.DELIVER)
        assert while_open(other, lambda: jobs.kill(USING, [job.id], reason="killed")) == {}
    assert [row.state for row in ArchivedJob.objects.all()] == ["DELIVERED"]


def test_a_renewal_while_jobs_of_the_claim_are_settled_keeps_the_rest_leased() -> None:
    """Settlements succeed during a renewal of their lease, and leave its row to the reaper."""
    consumer = ConsumerFactory.create()
    published(consumer, 2)
    first, other_job = claimed(consumer, 2)
    with session() as other:
        renew_in(other, first)
        finished = jobs.finish(USING, [outcomes.deliver(first), outcomes.deliver(other_job)])
        other.commit()
    assert set(finished.states.values()) == {State.DELIVERED}
    pass_time()
    jobs.reap(USING, 10)
    assert not Lease.objects.exists()


def test_concurrent_claimers_take_each_job_once() -> None:
    consumer = ConsumerFactory.create()
    made = published(consumer, 5_000)

    def drain(_number: int) -> list[Held]:
        puller, taken = Puller(USING, consumer), []
        while (claim := puller.claim(40)).taken:
            taken += [Held(job.id, claim.taken.lease_token) for job, _message in claim.jobs]
        return taken

    taken = [held for mine in at_once(8, drain) for held in mine]
    left = [held.job_id for held in claimed(consumer, 5_000)]
    assert sorted([held.job_id for held in taken] + left) == sorted(made)
    assert dict(query("SELECT id, lease_token FROM pulljobs_job WHERE deliveries = 1")).items() >= {
        (held.job_id, held.lease_token) for held in taken
    }
    assert query("SELECT max(deliveries) FROM pulljobs_job") == [(1,)]


def test_concurrent_flushes_claims_and_reapers_settle_each_job_once() -> None:
    consumer = ConsumerFactory.create(max_retries=9_999, max_deliveries=9_999)
    made = published(consumer, 1_500)

    def churn(number: int) -> int:
        lost = 0
        puller = Puller(USING, consumer)
        while Job.objects.exists():
            if number >= 4:
                jobs.reap(USING, 5)
                continue
            claim = puller.claim(25)
            if not claim.taken:
                continue
            if number == 3:  # a holder that is too slow
                query(
                    "UPDATE pulljobs_lease SET leased_until = clock_timestamp()"
                    " WHERE lease_token = %s",
                    [claim.taken.lease_token],
                )
            held = [Held(job.id, claim.taken.lease_token) for job, _message in claim.jobs]
            with transaction.atomic(USING):
                lost += len(jobs.finish(USING, list(map(outcomes.deliver, held))).lost)
        return lost

    at_once(6, churn)
    archived = list(ArchivedJob.objects.values_list("job_id", "state"))
    assert sorted(archived) == sorted((id, "DELIVERED") for id in made)


def test_a_deadlock_of_two_batches_is_fought_out_by_the_database() -> None:
    """Batches that lock the same jobs in opposite order all end, and settle each job once."""
    consumer = ConsumerFactory.create(max_retries=99)
    for _round in range(10):
        published(consumer, 40)
        held = claimed(consumer, 40)
        at_once(
            4,
            lambda number, held=held: jobs.finish(  # type: ignore[misc]  # mypy can't type a default
                USING,
                [
                    (outcomes.deliver if (n + number) % 2 else lambda h: outcomes.retry(h, "x"))(
                        each
                    )
                    for n, each in enumerate(held if number % 2 else reversed(held))
                ],
            ),
        )
        before = contents("pulljobs_archived_job")
        jobs.finish(USING, list(map(outcomes.deliver, held)))
        assert contents("pulljobs_archived_job") == before
        assert ArchivedJob.objects.count() + Job.objects.count() == 40
        query("DELETE FROM pulljobs_job")
        query("DELETE FROM pulljobs_archived_job")
