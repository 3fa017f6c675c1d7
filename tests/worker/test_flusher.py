"""Flusher: batches, refused outcomes, lost leases, and the leases of unwritten outcomes."""

import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction

from pulljobs import jobs, operating, pulling
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.engine.telemetry import LeasesLost, record_with
from pulljobs.handlers import ClaimedJob
from pulljobs.models import Consumer, Job, Lease
from pulljobs.states import State
from pulljobs.storage import sessions
from pulljobs.worker import flusher
from pulljobs.worker.executor import perform
from tests.factories import USING, ConsumerFactory
from tests.sessions import Thread, pass_time, query, session, wait_until
from tests.worker.claiming import FlusherBench, claim_of, claimed_job

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_refused_outcome_does_not_hold_up_the_others() -> None:
    """A refused outcome becomes a retry of its job, and the rest of the batch is written first."""
    batch = claim_of(print, 20)
    bench = FlusherBench(batch)
    bad = batch[7]
    for job in batch:
        outcome = outcomes.deliver(job.held)
        if job is bad:
            outcome = outcomes.retry(job.held, "later", after=timedelta.max)
        bench.results.append((job, outcome))
    bench.flusher.tick()
    assert list(Job.objects.values_list("id", flat=True)) == [bad.id]
    assert len(bench.in_flight) == 1
    bench.flusher.tick()
    view = jobs.get(bad.id)
    assert (view.state, view.retry_count) == (State.QUEUED, 1)
    assert (view.error or "").startswith("Its outcome can't be written: ")
    assert not bench.results
    assert not len(bench.in_flight)


def test_an_outcome_that_can_not_be_encoded_does_not_hold_up_the_others() -> None:
    good, bad = claim_of(print, 2)
    bench = FlusherBench([good, bad])
    bench.results.append((bad, outcomes.reject(bad.held, "\ud800")))
    bench.write(good, outcomes.deliver(good.held))
    assert jobs.get(good.id).state == State.DELIVERED


@pytest.mark.own_session
def test_while_a_row_is_locked_no_outcome_waits_for_another_locked_row() -> None:
    """An outcome whose row is locked is tried again later, and delays no later batch."""
    [first, second, free] = batch = claim_of(print, 3)
    bench = FlusherBench(batch)

    def write() -> float:
        sessions.dedicate(USING)
        bench.write(first, outcomes.deliver(first.held))
        with connections[USING].cursor() as cursor:
            cursor.execute("SET lock_timeout = 0")
        began = time.monotonic()
        bench.results.append((second, outcomes.deliver(second.held)))
        bench.write(free, outcomes.deliver(free.held))
        return time.monotonic() - began

    with session() as other:
        held = [first.id, second.id]
        other.execute("SELECT FROM pulljobs_job WHERE id = ANY(%s) FOR UPDATE", [held])
        assert Thread(write).result() < sessions.LONGEST_SECONDS / 2
        assert set(Job.objects.values_list("id", flat=True)) == set(held)
    wait_until(lambda: bench.flusher.tick() >= 0 and not Job.objects.exists())
    assert not len(bench.in_flight)


@pytest.mark.own_session
def test_an_outcome_whose_row_is_free_again_waits_for_no_other_locked_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row that is free again is written soon, even if each pass meets another locked row."""
    monkeypatch.setattr(flusher, "LOCKED_EVERY", 0.2)
    [first, *others] = batch = claim_of(print, 200)
    bench = FlusherBench(batch)
    with session() as other, session() as another:
        other.execute("SELECT FROM pulljobs_job WHERE id = %s FOR UPDATE", [first.id])
        rest = [job.id for job in others]
        another.execute("SELECT FROM pulljobs_job WHERE id = ANY(%s) FOR UPDATE", [rest])
        bench.write(first, outcomes.deliver(first.held))
        other.rollback()

        def is_written() -> bool:
            locked = others.pop()
            bench.write(locked, outcomes.deliver(locked.held))
            return not Job.objects.filter(id=first.id).exists()

        wait_until(is_written, seconds=5)


@pytest.mark.own_session
def test_failed_batch_is_written_by_a_later_pass_in_order() -> None:
    batch = claim_of(print, 5)
    bench = FlusherBench(batch)
    bench.results.extend((job, outcomes.deliver(job.held)) for job in batch)
    with session() as other:
        other.execute("LOCK TABLE pulljobs_job")
        with connections[USING].cursor() as cursor:
            cursor.execute("SET lock_timeout = '50ms'")
        with pytest.raises(OperationalError):
            bench.flusher.tick()
    assert [job for job, _outcome in bench.results] == batch
    assert len(bench.in_flight) == 5
    connections[USING].close()
    bench.flusher.tick()
    assert not Job.objects.exists()
    assert not len(bench.in_flight)


def test_passes_write_no_more_than_the_flush_size_and_go_on_at_once() -> None:
    batch = claim_of(print, 5)
    bench = FlusherBench(batch, FLUSH_SIZE=2)
    bench.results.extend((job, outcomes.deliver(job.held)) for job in batch)
    assert bench.flusher.tick() == 0
    assert Job.objects.count() == 3
    assert bench.flusher.tick() == 0
    assert bench.flusher.tick() > 0
    assert not Job.objects.exists()


def test_an_outcome_under_a_lost_lease_is_dropped_and_the_new_lease_untouched() -> None:
    consumer = ConsumerFactory.create()
    [old] = claim_of(print, consumer=consumer)
    bench = FlusherBench([old])
    pass_time()
    while pulling.reap() is not None:
        pass
    claim = pulling.Puller(USING, consumer).claim(1)
    assert claim.taken
    before = list(Job.objects.values())
    for outcome in (
        outcomes.deliver(old.held),
        outcomes.retry(old.held, "late"),
        outcomes.reject(old.held, "late"),
        outcomes.release(old.held),
    ):
        bench.in_flight.add([old])
        bench.write(old, outcome)
        assert not len(bench.in_flight)
    assert pulling.renew([old.held]) == {}
    assert not old.renew()
    assert list(Job.objects.values()) == before
    assert Lease.objects.get().lease_token == claim.taken.lease_token


def test_a_job_that_was_lost_and_claimed_again_follows_its_new_lease_only() -> None:
    """The outcome of the lost run is dropped with an event, and that of the new run is written."""
    [first] = claim_of(print)
    pass_time()
    while pulling.reap() is not None:
        pass
    query("UPDATE pulljobs_job SET available_at = now()")
    claim = pulling.Puller(USING, Consumer.objects.get()).claim(1)
    assert claim.taken
    [(row, message)] = claim.jobs
    again = claimed_job(first.handler, row, message, Held(row.id, claim.taken.lease_token))
    bench, events = FlusherBench([first, again]), list[object]()
    end = record_with(events.append)
    bench.results.append((first, outcomes.deliver(first.held)))
    bench.write(again, outcomes.reject(again.held, "no"))
    end()
    assert jobs.get(first.id).state == State.DEAD
    assert LeasesLost(1, *first.handler.names) in events


def test_due_leases_are_renewed_in_one_pass_and_lost_jobs_are_marked() -> None:
    kept, lost = claim_of(print, 2)
    bench = FlusherBench([kept, lost])
    operating.kill([lost.id], by="test")
    before = Lease.objects.get().leased_until
    kept.renew_at = lost.renew_at = 0
    bench.renewer.tick()
    assert not kept.lost
    assert kept.renew_at > time.monotonic()
    assert Lease.objects.get(job_ids__contains=[kept.id]).leased_until > before
    assert lost.lost
    assert bench.in_flight.due_for_renewal() == []


def test_a_renewal_right_after_the_commit_of_a_handler_reports_no_loss(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def function(job: ClaimedJob) -> None:
        transaction.on_commit(lambda: bench.renewer.tick())

    [job] = claim_of(function, transactional=True)
    bench = FlusherBench([job])
    job.extend(time.monotonic() - job.lease_duration.total_seconds() / 2)
    bench.write(job, perform(job))
    assert jobs.get(job.id).state == State.DELIVERED
    assert not job.lost
    assert not caplog.records


def test_a_renewal_that_is_noted_after_the_settlement_causes_no_loss_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def renew(*args: Any, **options: Any) -> Any:
        kept = renewed(*args, **options)
        monkeypatch.undo()
        perform(job)
        return kept

    renewed = pulling.renew
    monkeypatch.setattr(pulling, "renew", renew)
    [job] = claim_of(lambda job: None, ack_policy="ack_first")
    bench = FlusherBench([job])
    job.renew_at = 0
    bench.renewer.tick()
    assert jobs.get(job.id).state == State.DELIVERED
    bench.in_flight.request_renewal()
    bench.renewer.tick()
    assert not job.lost
    assert not caplog.records
