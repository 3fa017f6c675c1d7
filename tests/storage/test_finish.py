"""Outcomes: each is written once, by who holds the job, whatever else is in the batch."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError
from django.utils import timezone

from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.models import ArchivedJob, Attempt, Consumer, Job, Lease
from pulljobs.states import Event, Reason, State
from pulljobs.storage import jobs, leases
from tests.factories import USING, ConsumerFactory, claimed, published
from tests.sessions import contents, pass_time, query, refuse_archiving, states

pytestmark = pytest.mark.django_db


def held_jobs(count: int, **options: object) -> list[Held]:
    return claim_new(ConsumerFactory.create(**options), count)


def claim_new(consumer: Consumer, count: int = 1) -> list[Held]:
    published(consumer, count)
    return claimed(consumer, count)


def test_a_stale_outcome_lends_its_event_to_no_other_job() -> None:
    """An outcome with an old lease token changes nothing, even in a batch with the holder's."""
    [held] = held_jobs(1)
    stale = Held(held.job_id, uuid4())
    jobs.finish(USING, [outcomes.deliver(stale), outcomes.retry(held, "again")])
    assert states() == {held.job_id: State.QUEUED}


def test_a_batch_settles_each_job_by_its_own_event() -> None:
    held = held_jobs(5)
    finished = jobs.finish(
        USING,
        [
            outcomes.retry(held[3], "later"),
            outcomes.deliver(held[0], '{"sum": 3}'),
            outcomes.release(held[4]),
            outcomes.reject(held[1], "broken"),
            outcomes.reject(held[2], "late", reason=Reason.TIMED_OUT),
        ],
    )
    ids = [job.job_id for job in held]
    assert finished.lost == []
    assert finished.refused == {}
    assert finished.states == {
        ids[0]: State.DELIVERED,
        ids[1]: State.DEAD,
        ids[2]: State.DEAD,
        ids[3]: State.QUEUED,
        ids[4]: State.QUEUED,
    }
    assert states() == {id: state for id, state in finished.states.items() if id != ids[0]}
    archived = {row.job_id: row for row in ArchivedJob.objects.all()}
    assert set(archived) == set(ids[:3])
    assert (archived[ids[0]].result, archived[ids[0]].reason) == ({"sum": 3}, None)
    assert (archived[ids[1]].error, archived[ids[1]].reason) == ("broken", "rejected")
    assert (archived[ids[2]].error, archived[ids[2]].reason) == ("late", "timed_out")


def test_the_archive_tells_the_whole_story() -> None:
    node = uuid4()
    consumer = ConsumerFactory.create()
    [job_id] = published(consumer)
    [first] = claimed(consumer)
    jobs.finish(USING, [outcomes.retry(first, "again")])
    [held] = claimed(consumer, node_id=node)
    lease, job = Lease.objects.get(), Job.objects.get()
    jobs.finish(USING, [outcomes.deliver(held)])
    row = ArchivedJob.objects.get()
    assert (row.job_id, row.message_id, row.consumer_id) == (job_id, job.message_id, consumer.pk)
    assert (row.retry_count, row.deliveries) == (1, 2)
    assert (row.node_id, row.lease_token, row.claimed_at) == (
        node,
        held.lease_token,
        lease.claimed_at,
    )
    assert row.claimed_at is not None
    assert row.created_at < row.claimed_at <= row.settled_at
    [(xid,)] = query("SELECT pg_current_xact_id()::text::bigint")
    assert row.settled_xid == xid


def delivered_with_a_result(held: Held) -> Settlement:
    return outcomes.deliver(held, "1")


def retried(held: Held) -> Settlement:
    return outcomes.retry(held, "again")


@pytest.mark.parametrize("settle", [outcomes.deliver, delivered_with_a_result])
def test_a_lease_goes_with_its_last_job(settle: Any) -> None:
    jobs.finish(USING, list(map(settle, held_jobs(2))))
    assert not Lease.objects.exists()


def test_a_lease_goes_with_its_last_job_however_it_is_split() -> None:
    consumer = ConsumerFactory.create()
    published(consumer, 90)
    first, second = claimed(consumer, 45), claimed(consumer, 45)
    before_last = list(map(outcomes.deliver, [*first, *second[:30]]))
    assert len(jobs.finish(USING, before_last).states) == 75
    assert list(Lease.objects.values_list("lease_token", flat=True)) == [second[0].lease_token]
    jobs.finish(USING, list(map(outcomes.deliver, second[30:])))
    assert not Lease.objects.exists()
    assert ArchivedJob.objects.count() == 90


@pytest.mark.parametrize("settle", [outcomes.deliver, delivered_with_a_result, retried])
def test_a_lease_goes_with_its_last_job_however_the_others_ended(settle: Any) -> None:
    """A lease ends with the last of its jobs, although each of them ended in another way."""
    delivered, rejected, released, killed, last = held_jobs(5)
    jobs.finish(USING, [outcomes.deliver(delivered)])
    jobs.finish(USING, [outcomes.reject(rejected, "broken"), outcomes.release(released)])
    jobs.kill(USING, [killed.job_id], reason="killed")
    assert Lease.objects.exists()
    jobs.finish(USING, [settle(last)])
    assert not Lease.objects.exists()


@pytest.mark.parametrize("settle", [outcomes.deliver, delivered_with_a_result])
def test_a_lease_lives_as_long_as_any_of_its_jobs(settle: Any) -> None:
    """A lease ends with the last of its jobs, even if the job that was claimed last ends first."""
    first, second, third, last = held_jobs(4)
    jobs.finish(USING, [settle(last)])
    jobs.finish(USING, [settle(first)])
    assert Lease.objects.exists()
    jobs.finish(USING, [settle(second), settle(third)])
    assert not Lease.objects.exists()


def test_a_part_of_a_claim_that_was_renewed_goes_without_the_rest() -> None:
    consumer = ConsumerFactory.create()
    published(consumer, 4)
    held = claimed(consumer, 4)
    leases.renew(USING, held[:2])
    jobs.finish(USING, list(map(outcomes.deliver, held[:2])))
    assert list(Lease.objects.values_list("job_ids", flat=True)) == [
        [job.job_id for job in held[2:]]
    ]
    jobs.finish(USING, list(map(outcomes.deliver, held[2:])))
    assert not Lease.objects.exists()


def test_deliveries_of_many_claims_are_each_under_their_own_token() -> None:
    """A delivery with the lease token of another claim in the same batch changes nothing."""
    consumer = ConsumerFactory.create()
    published(consumer, 90)
    first, second = claimed(consumer, 45), claimed(consumer, 45)
    swapped = [
        Held(each.job_id, other.lease_token)
        for each, other in zip(first[:5], second[:5], strict=True)
    ]
    offered = [*first[5:], *second[5:], *swapped]
    finished = jobs.finish(USING, list(map(outcomes.deliver, offered)))
    assert sorted(finished.lost) == sorted(each.job_id for each in first[:5])
    held = {*first[:5], *second[:5]}
    assert set(leases.renew(USING, list(held))) == held
    assert ArchivedJob.objects.count() == 80


@pytest.mark.parametrize(
    "settle",
    [outcomes.deliver, delivered_with_a_result, lambda held: outcomes.reject(held, "bad")],
    ids=["deliver", "deliver with a result", "reject"],
)
def test_a_repeat_is_answered_the_same_and_writes_nothing(settle: Any) -> None:
    settlements = list(map(settle, held_jobs(3)))
    first = jobs.finish(USING, settlements)
    before = contents()
    assert jobs.finish(USING, settlements) == replace(first, repeated=frozenset(first.states))
    assert contents() == before


def test_a_repeated_retry_that_ended_dead_is_answered_the_same() -> None:
    """A write that is repeated, because its answer was lost, returns the state DEAD again."""
    settlements = [outcomes.retry(each, "bad") for each in held_jobs(2, max_retries=0)]
    first = jobs.finish(USING, settlements)
    assert set(first.states.values()) == {State.DEAD}
    assert jobs.finish(USING, settlements) == replace(first, repeated=frozenset(first.states))


def test_another_outcome_after_the_first_is_lost() -> None:
    [held] = held_jobs(1)
    jobs.finish(USING, [outcomes.deliver(held)])
    before = contents()
    finished = jobs.finish(USING, [outcomes.reject(held, "no, bad")])
    assert (finished.states, finished.lost) == ({}, [held.job_id])
    assert contents() == before


def test_a_job_named_twice_in_one_batch_is_settled_once() -> None:
    [held] = held_jobs(1)
    jobs.finish(USING, [outcomes.deliver(held), outcomes.deliver(held)])
    assert ArchivedJob.objects.count() == 1


def test_a_late_outcome_counts_until_the_job_is_taken() -> None:
    [held] = held_jobs(1)
    pass_time()
    assert jobs.finish(USING, [outcomes.deliver(held)]).states == {held.job_id: State.DELIVERED}


@pytest.mark.parametrize("event", [Event.DELIVER, Event.REJECT, Event.RETRY, Event.RELEASE])
def test_after_the_reaper_an_outcome_is_lost(event: Event) -> None:
    [held] = held_jobs(1)
    pass_time()
    jobs.reap(USING, 10)
    before = contents()
    assert jobs.finish(USING, [Settlement(held, event, error="x")]).lost == [held.job_id]
    assert contents() == before


BAD = {
    "a NUL in the result": lambda held: outcomes.deliver(held, json.dumps("\x00")),
    "half a pair in the result": lambda held: outcomes.deliver(held, '"\\ud800"'),
    "no JSON": lambda held: outcomes.deliver(held, "{"),
    "JSON too deep": lambda held: outcomes.deliver(held, "[" * 100_000 + "]" * 100_000),
    "a NUL in the error": lambda held: outcomes.reject(held, "secret\x00"),
    "half a pair in the error": lambda held: outcomes.retry(held, "secret\udce9"),
    "a reason too long": lambda held: outcomes.reject(held, "secret", reason="x" * 30),
    "a delay too long": lambda held: outcomes.retry(held, "secret", after=timedelta.max),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_one_outcome_that_can_not_be_written_does_not_stop_the_others(bad: Any) -> None:
    held = held_jobs(51)
    settlements = list(map(outcomes.deliver, held))
    settlements[17] = bad(held[17])
    finished = jobs.finish(USING, settlements)
    [(refused, why)] = finished.refused.items()
    assert refused == held[17].job_id
    assert finished.lost == []
    assert set(finished.states) == {job.job_id for job in held} - {refused}
    assert states() == {refused: State.INFLIGHT}
    assert why
    assert "secret" not in why
    assert str(held[17].lease_token) not in why


@pytest.mark.parametrize("code", ["", "USING ERRCODE = 'data_corrupted'"])
def test_one_row_that_can_not_be_written_does_not_stop_the_others(code: str) -> None:
    """A job that a trigger or a damaged row keeps from being written is refused, and no other."""
    held = held_jobs(9)
    refuse_archiving(held[4].job_id, code)
    finished = jobs.finish(USING, list(map(outcomes.deliver, held)))
    assert finished.refused == {held[4].job_id: "not this row"}
    assert set(finished.states) == {job.job_id for job in held} - {held[4].job_id}


def test_a_failing_outcome_leaves_the_callers_transaction_usable() -> None:
    held = held_jobs(2)
    with transaction.atomic(USING):
        finished = jobs.finish(USING, [outcomes.deliver(held[0]), outcomes.reject(held[1], "\x00")])
        assert set(finished.refused) == {held[1].job_id}
        other = ConsumerFactory.create()
    assert Consumer.objects.filter(pk=other.pk).exists()
    assert states() == {held[1].job_id: State.INFLIGHT}


def test_a_broken_transaction_is_no_rows_fault() -> None:
    """`finish` in a broken transaction raises, and reports no outcome as refused."""
    held = held_jobs(2)
    with transaction.atomic(USING):
        transaction.set_rollback(True, using=USING)
        with pytest.raises(TransactionManagementError):
            jobs.finish(USING, list(map(outcomes.deliver, held)))


@pytest.mark.django_db(transaction=True)
def test_an_outcome_goes_with_the_callers_transaction() -> None:
    [held] = held_jobs(1)
    with transaction.atomic(USING):
        ConsumerFactory.create(name="effect")
        jobs.finish(USING, [outcomes.deliver(held)])
        transaction.set_rollback(True, using=USING)
    assert states() == {held.job_id: State.INFLIGHT}
    assert not Consumer.objects.filter(name="effect").exists()
    assert jobs.finish(USING, [outcomes.deliver(held)]).states


def test_a_release_charges_nothing() -> None:
    consumer = ConsumerFactory.create()
    [job_id] = published(consumer)
    before = Job.objects.get()
    for _round in range(3):
        jobs.finish(USING, [outcomes.release(job) for job in claimed(consumer)])
    job = Job.objects.get()
    assert (job.retry_count, job.deliveries, job.first_claimed_at) == (0, 0, None)
    assert before.available_at is not None
    assert job.available_at is not None
    assert job.available_at > before.available_at
    assert [job.job_id for job in claimed(consumer)] == [job_id]


def test_a_release_keeps_what_was_charged_before() -> None:
    consumer = ConsumerFactory.create()
    jobs.finish(USING, [outcomes.retry(each, "first") for each in claim_new(consumer)])
    first = Job.objects.get().first_claimed_at
    jobs.finish(USING, [outcomes.release(job) for job in claimed(consumer)])
    job = Job.objects.get()
    assert (job.retry_count, job.deliveries, job.error) == (1, 1, "first")
    assert job.first_claimed_at == first


def test_a_suspension_resets_the_counts_of_a_job() -> None:
    consumer = ConsumerFactory.create(max_total_delay=timedelta(hours=1))
    jobs.finish(USING, [outcomes.retry(each, "first") for each in claim_new(consumer)])
    [held] = claimed(consumer)
    jobs.finish(USING, [outcomes.suspend(held, timedelta(days=7))])
    job = Job.objects.get()
    assert (job.retry_count, job.deliveries, job.first_claimed_at) == (0, 1, None)
    assert job.error is None
    assert claimed(consumer) == []
    assert job.available_at is not None
    assert timedelta(days=6) < job.available_at - timezone.now() < timedelta(days=8)
    attempts = Attempt.objects.filter(job_id=job.id).order_by("id").values_list("event", flat=True)
    assert list(attempts) == ["retry", "suspend"]


def test_retries_used_up() -> None:
    """A job that fails once more than `max_retries` is DEAD, and archived as retries_exhausted."""
    consumer = ConsumerFactory.create(max_retries=2)
    published(consumer)
    for attempt in range(3):
        [held] = claimed(consumer)
        [state] = jobs.finish(USING, [outcomes.retry(held, f"failure {attempt}")]).states.values()
        assert state == (State.DEAD if attempt == 2 else State.QUEUED)
    [row] = ArchivedJob.objects.all()
    assert (row.state, row.reason, row.retry_count, row.deliveries) == (
        "DEAD",
        "retries_exhausted",
        2,
        3,
    )
    assert row.error == "failure 2"
    job = Job.objects.get()
    assert (job.state, job.reason, job.available_at) == ("DEAD", "retries_exhausted", None)


def test_the_strategy_none_never_retries() -> None:
    [held] = held_jobs(1, retry_strategy="none", max_retries=5)
    jobs.finish(USING, [outcomes.retry(held, "bad")])
    assert Job.objects.get().reason == "retries_exhausted"


def test_deliveries_are_bounded_whatever_gives_the_job_back() -> None:
    consumer = ConsumerFactory.create(max_deliveries=3, max_retries=99)
    published(consumer)
    for _round in range(3):
        claimed(consumer)
        pass_time()
        jobs.reap(USING, 10)
    job = Job.objects.get()
    assert (job.state, job.reason, job.deliveries) == ("DEAD", "max_deliveries", 3)


def test_no_retry_is_planned_past_the_total_delay() -> None:
    held = held_jobs(
        2, retry_strategy="constant:50", max_total_delay=timedelta(seconds=60), max_retries=99
    )
    jobs.finish(USING, [outcomes.retry(job, "bad") for job in held])
    assert set(states().values()) == {"QUEUED"}
    query(
        "UPDATE pulljobs_job SET"
        " first_claimed_at = first_claimed_at - interval '20 s', available_at = now()"
    )
    again = claimed(Consumer.objects.get(), 2)
    jobs.finish(USING, [outcomes.retry(each, "bad") for each in again])
    assert set(Job.objects.values_list("reason", flat=True)) == {"retries_exhausted"}


def test_a_handlers_own_delay_replaces_the_strategys() -> None:
    [held] = held_jobs(1, retry_strategy="constant:5")
    jobs.finish(USING, [outcomes.retry(held, "bad", after=timedelta(minutes=9))])
    [(wait,)] = query("SELECT available_at - clock_timestamp() FROM pulljobs_job")
    assert timedelta(minutes=8) < wait <= timedelta(minutes=9)


def test_no_savepoint_is_left_behind_in_the_callers_transaction() -> None:
    held = held_jobs(3)
    with transaction.atomic(USING):
        depth = len(connection.savepoint_ids)
        jobs.finish(USING, list(map(outcomes.deliver, held)))
        assert len(connection.savepoint_ids) == depth
