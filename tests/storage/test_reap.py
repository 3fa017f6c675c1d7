"""Leases that are over, and nodes that are dead: their jobs come back, each once."""

import logging
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest

from pulljobs import pulling
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.models import ArchivedJob, Job, Lease
from pulljobs.states import State
from pulljobs.storage import jobs, leases
from tests.factories import USING, ConsumerFactory, claimed, published
from tests.sessions import (
    at_once,
    contents,
    lock_timeout,
    pass_time,
    query,
    refuse_archiving,
    states,
)

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _fail_rather_than_hang(db: None) -> Iterator[None]:
    with lock_timeout():
        yield


def test_leases_that_run_are_left_alone() -> None:
    consumer = ConsumerFactory.create()
    published(consumer, 3)
    claimed(consumer, 3)
    before = contents()
    assert jobs.reap(USING, 10) is None
    assert contents() == before


def test_an_expired_job_goes_back_after_its_delay_and_is_charged() -> None:
    consumer = ConsumerFactory.create(retry_strategy="constant:60")
    [job_id] = published(consumer)
    claimed(consumer)
    pass_time()
    finished = jobs.reap(USING, 10)
    assert finished
    assert finished.states == {job_id: State.QUEUED}
    job = Job.objects.get()
    [(wait,)] = query("SELECT available_at - clock_timestamp() FROM pulljobs_job")
    assert (job.state, job.retry_count, job.deliveries) == ("QUEUED", 1, 1)
    assert timedelta(seconds=30) < wait <= timedelta(seconds=60)
    assert not Lease.objects.exists()


def test_an_expired_job_without_retries_left_is_archived_dead() -> None:
    consumer = ConsumerFactory.create(max_retries=0)
    [job_id] = published(consumer)
    [held] = claimed(consumer)
    pass_time()
    finished = jobs.reap(USING, 10)
    assert finished
    assert finished.states == {job_id: State.DEAD}
    row = ArchivedJob.objects.get()
    assert (row.job_id, row.reason, row.lease_token) == (
        job_id,
        "retries_exhausted",
        held.lease_token,
    )


def test_a_reap_takes_at_most_the_given_number_of_leases() -> None:
    consumer = ConsumerFactory.create()
    published(consumer, 5)
    for _claim in range(5):
        claimed(consumer)
    pass_time()
    done = []
    while finished := jobs.reap(USING, 2):
        done.append(len(finished.states))
    assert done == [2, 2, 1]


def test_only_jobs_still_held_expire() -> None:
    """A lease that ends expires only the jobs still held under it, not all that its row lists."""
    consumer = ConsumerFactory.create()
    published(consumer, 4)
    delivered, dead, given_back, held = claimed(consumer, 4)
    jobs.finish(USING, [outcomes.deliver(delivered), outcomes.reject(dead, "bad")])
    jobs.finish(USING, [outcomes.release(given_back)])
    pass_time()
    [next_held] = claimed(consumer)
    assert next_held.job_id == given_back.job_id
    finished = jobs.reap(USING, 10)
    assert finished
    assert finished.states == {held.job_id: State.QUEUED}
    assert states()[next_held.job_id] == "INFLIGHT"
    assert set(leases.renew(USING, [next_held])) == {next_held}


def test_a_lease_with_nothing_left_goes_without_a_word() -> None:
    consumer = ConsumerFactory.create()
    published(consumer, 2)
    jobs.kill(USING, [held.job_id for held in claimed(consumer, 2)], reason="killed")
    assert Lease.objects.exists()
    pass_time()
    finished = jobs.reap(USING, 10)
    assert finished
    assert finished.states == {}
    assert not Lease.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_five_reapers_at_once_give_each_job_back_once() -> None:
    consumer = ConsumerFactory.create(max_retries=99)
    made = published(consumer, 300)
    while claimed(consumer, 5):
        pass
    pass_time()

    def reap(_number: int) -> list[int]:
        done: list[int] = []
        while Lease.objects.exists():
            finished = jobs.reap(USING, 3)
            done += finished.states if finished else []
        return done

    reaped = [id for done in at_once(5, reap) for id in done]
    assert sorted(reaped) == sorted(made)
    assert set(Job.objects.values_list("retry_count", "deliveries", "state")) == {(1, 1, "QUEUED")}


def test_a_dead_node_charges_what_it_had_started_and_nothing_else() -> None:
    consumer = ConsumerFactory.create()
    published(consumer, 6)
    node, other = uuid4(), uuid4()
    mine = [*claimed(consumer, 3, node_id=node), *claimed(consumer, 1, node_id=node)]
    others = claimed(consumer, 2, node_id=other)
    started = frozenset([mine[0].job_id, mine[3].job_id])
    finished = jobs.abandon(USING, node, started)
    assert finished
    assert finished.states == {held.job_id: State.QUEUED for held in mine}
    charged = dict(query("SELECT id, retry_count * 10 + deliveries FROM pulljobs_job"))
    assert {charged[held.job_id] for held in mine if held.job_id in started} == {11}
    assert {charged[held.job_id] for held in mine if held.job_id not in started} == {0}
    assert set(leases.renew(USING, others)) == set(others)
    assert jobs.abandon(USING, node, started) is None


def test_a_dead_node_takes_nothing_from_who_has_its_job_now() -> None:
    consumer = ConsumerFactory.create()
    published(consumer, 2)
    node = uuid4()
    held = claimed(consumer, 2, node_id=node)
    jobs.finish(USING, [outcomes.release(held[0])])
    [taken] = claimed(consumer)
    finished = jobs.abandon(USING, node, frozenset([held[0].job_id]))
    assert finished
    assert set(finished.states) == {held[1].job_id}
    assert states()[taken.job_id] == "INFLIGHT"


def test_what_a_dead_node_had_not_started_is_free_at_once() -> None:
    consumer = ConsumerFactory.create()
    [job_id] = published(consumer)
    node = uuid4()
    claimed(consumer, node_id=node)
    assert pulling.abandon(node, frozenset()) == 1
    assert [held.job_id for held in claimed(consumer)] == [job_id]


def blame() -> set[tuple[int, int, bool]]:
    rows = query("SELECT retry_count, deliveries, suspect FROM pulljobs_job")
    return set(rows)


def test_jobs_of_a_worker_that_ran_at_its_last_renewal_are_charged_suspects() -> None:
    """Jobs that ran are charged a retry and become crash suspects. Others are claimable at once."""
    consumer = ConsumerFactory.create(retry_strategy="constant:60")
    published(consumer, 3)
    held = claimed(consumer, 3, node_id=uuid4())
    running = held[0].job_id
    leases.renew(USING, held, running=[running])
    pass_time()
    assert jobs.reap(USING, 1)
    assert blame() == {(1, 1, True), (0, 1, False)}
    free = [job.job_id for job in claimed(consumer, 3)]
    assert free == [job.job_id for job in held if job.job_id != running]


@pytest.mark.parametrize("max_deliveries", [1, 2, 3])
def test_jobs_that_never_ran_are_never_charged_but_run_alone_after_the_second_loss(
    max_deliveries: int,
) -> None:
    """Jobs that are not known to have run are never charged, but suspects after a second loss."""
    consumer = ConsumerFactory.create(max_deliveries=max_deliveries)
    published(consumer)
    for _loss in range(max_deliveries + 2):
        assert claimed(consumer, node_id=uuid4())
        pass_time()
        assert jobs.reap(USING, 1)
        assert [(job.state, job.retry_count) for job in Job.objects.all()] == [("QUEUED", 0)]
    assert Job.objects.get().suspect
    assert Job.objects.get().deliveries < max_deliveries


def test_the_first_loss_of_a_job_that_is_not_known_to_have_run_makes_it_no_suspect() -> None:
    """A job that is lost once and not known to have run is no suspect, so it need not run alone."""
    consumer = ConsumerFactory.create()
    published(consumer)
    claimed(consumer, node_id=uuid4())
    pass_time()
    assert jobs.reap(USING, 1)
    assert blame() == {(0, 1, False)}


def test_jobs_of_a_push_are_charged_and_no_suspects() -> None:
    """Lost push deliveries are charged, but are no suspects: they run no code of the project."""
    consumer = ConsumerFactory.create(type="push", callback_url="https://example.org/")
    published(consumer)
    held = claimed(consumer, node_id=uuid4(), via=Lease.Via.PUSH)
    leases.renew(USING, held, running=[held[0].job_id])
    pass_time()
    assert jobs.reap(USING, 1)
    assert blame() == {(1, 1, False)}


def test_the_reaper_counts_what_it_gave_back() -> None:
    consumer = ConsumerFactory.create()
    published(consumer, 3)
    claimed(consumer, 3)
    assert pulling.reap() is None
    pass_time()
    assert pulling.reap() == 3
    assert pulling.reap() is None


def test_no_job_is_in_flight_without_a_lease_row() -> None:
    """No series of renewals, outcomes and kills leaves a job in flight without a lease row."""
    consumer = ConsumerFactory.create()
    published(consumer, 40)
    held = claimed(consumer, 40)
    for n in range(0, 36, 3):
        leases.renew(USING, held[n : n + 2])
        jobs.finish(USING, [outcomes.deliver(held[n]), outcomes.release(held[n + 2])])
        assert orphans() == []
    jobs.kill(USING, [job.job_id for job in held[36:]], reason="killed")
    assert orphans() == []


def orphans() -> list[Held]:
    return [
        Held(*row)
        for row in query(
            "SELECT id, lease_token FROM pulljobs_job AS job WHERE state = 'INFLIGHT'"
            " AND NOT EXISTS"
            " (SELECT FROM pulljobs_lease WHERE lease_token = job.lease_token"
            " AND job.id = ANY(job_ids))"
        )
    ]


@pytest.mark.django_db(transaction=True)
def test_a_job_that_can_not_be_written_holds_back_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A job that can't be written keeps its lease for a later pass and is logged. Others expire."""
    consumer = ConsumerFactory.create(max_retries=0)
    bad, *good = published(consumer, 4)
    claimed(consumer, 2)
    claimed(consumer, 2)
    refuse_archiving(bad)
    pass_time()
    with caplog.at_level(logging.ERROR):
        assert pulling.reap() == 3
    assert caplog.messages == [f"The outcome of job {bad} can't be written: not this row"]
    assert states() == {bad: State.INFLIGHT} | dict.fromkeys(good, State.DEAD)
    query("DROP FUNCTION refuse CASCADE")
    pass_time()
    assert pulling.reap() == 1
    assert set(states().values()) == {State.DEAD}
    assert not Lease.objects.exists()
