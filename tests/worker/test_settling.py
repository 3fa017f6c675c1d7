"""Settlement before the handler, at most once, and together with it, exactly once."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import DatabaseError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from pulljobs import jobs, operating, pulling
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Settlement
from pulljobs.engine.telemetry import JobFailed, record_with
from pulljobs.errors import LeaseLost
from pulljobs.handlers import ClaimedJob
from pulljobs.publishing import publish
from pulljobs.states import State
from pulljobs.worker.executor import outcome_of_cancelled, perform
from pulljobs.worker.runs import CancelReason
from tests.factories import USING, ConsumerFactory
from tests.sessions import PATIENCE_SECONDS, Thread, query, session
from tests.worker.claiming import FlusherBench, claim_of

pytestmark = pytest.mark.django_db(transaction=True)


def effect(job: ClaimedJob) -> Any:
    Group.objects.create(name="effect")


def test_effects_and_settlement_are_one() -> None:
    seen: list[Any] = []

    def function(job: ClaimedJob) -> dict[str, int]:
        effect(job)
        seen.append(Thread(lambda: (Group.objects.count(), jobs.get(job.id).state)).result())
        return {"n": 1}

    [job] = claim_of(function, transactional=True)
    assert perform(job) is None
    assert seen == [(0, State.INFLIGHT)]
    assert (Group.objects.count(), jobs.get(job.id).state) == (1, State.DELIVERED)
    assert jobs.get(job.id).result == {"n": 1}


@pytest.mark.own_session
def test_settlements_in_the_transaction_of_a_handler_keep_their_plan() -> None:
    """Settlements in a handler's transaction have a kept plan, and the handler its own settings."""
    seen: list[object] = []

    def function(job: ClaimedJob) -> None:
        seen.extend(query("SELECT current_setting('enable_seqscan')"))

    for _number in range(2):
        [job] = claim_of(function, transactional=True)
        with CaptureQueriesContext(connection) as run:
            perform(job)
        assert not [each for each in run.captured_queries if "SAVEPOINT" in each["sql"]]
    plans = (
        "SELECT current_setting('enable_seqscan'), generic_plans, custom_plans"
        " FROM pg_prepared_statements WHERE starts_with(statement, '-- Deliver ')"
    )
    assert (seen, query(plans)) == ([("on",)] * 2, [("on", 2, 0)])


@pytest.mark.own_session
@pytest.mark.parametrize("settle", [pulling.finish, pulling.finish_together])
def test_claims_and_settlements_of_web_processes_keep_their_plans(
    settle: Callable[[list[Settlement]], object],
) -> None:
    consumer = ConsumerFactory.create()
    puller = pulling.Puller(USING, consumer)
    for _number in range(3):
        publish(consumer.channel.name, b"x")
        claim = puller.claim(1)
        assert claim.taken is not None
        [(row, _message)] = claim.jobs
        settle([outcomes.deliver(outcomes.Held(row.id, claim.taken.lease_token))])
    plans = query(
        "SELECT left(statement, 10), generic_plans > 0, custom_plans FROM pg_prepared_statements"
        " WHERE statement ~ '^-- (Claim|Deliver) '"
    )
    assert set(plans) == {("-- Claim j", True, 0), ("-- Deliver", True, 0)}
    assert query("SELECT current_setting('enable_seqscan')") == [("on",)]


def test_lost_lease_undoes_the_effects() -> None:
    def function(job: ClaimedJob) -> None:
        effect(job)
        Thread(lambda: operating.kill([job.id], by="test")).result()

    [job] = claim_of(function, transactional=True)
    assert perform(job) is None
    assert job.lost
    assert not Group.objects.exists()
    assert jobs.get(job.id).state == State.DEAD


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize(("raises", "state"), [(True, State.QUEUED), (False, State.DELIVERED)])
def test_a_job_whose_handler_raises_lease_lost_at_the_end_of_its_lease_is_released_uncharged(
    raises: bool, state: State, transactional: bool
) -> None:
    """LeaseLost releases a job whose lease is over by the worker's clock. A return delivers it."""

    def function(job: ClaimedJob) -> None:
        effect(job)
        job.deadline = time.monotonic()
        if job.lost and raises:
            raise LeaseLost(job.id)

    [job] = claim_of(function, transactional=transactional)
    FlusherBench([job]).write(job, perform(job))
    assert (jobs.get(job.id).state, jobs.get(job.id).retry_count) == (state, 0)
    assert Group.objects.exists() is not (transactional and raises)


def test_an_acked_job_whose_handler_raises_lease_lost_by_the_clock_is_delivered() -> None:
    """An ack before LeaseLost delivers the job, as its lease is over by the worker's clock only."""

    def function(job: ClaimedJob) -> None:
        job.ack()
        job.deadline = time.monotonic()
        raise LeaseLost(job.id)

    [job] = claim_of(function)
    FlusherBench([job]).write(job, perform(job))
    assert jobs.get(job.id).state == State.DELIVERED


@pytest.mark.parametrize("is_acked", [True, False])
@pytest.mark.parametrize("is_written_first", [True, False])
def test_a_transactional_job_over_its_time_limit_is_not_delivered(
    is_written_first: bool, is_acked: bool
) -> None:
    """A job over its time limit is rolled back and retried, even if its handler acks or returns."""

    def function(job: ClaimedJob) -> None:
        effect(job)
        if is_acked:
            job.ack()
        [run] = bench.buffer.runs.current()
        run.cancel(CancelReason.TIMED_OUT)
        if is_written_first:
            Thread(bench.flusher.tick).result()

    bench, job = begin(function)
    bench.buffer.end(job, perform(job))
    bench.flusher.tick()
    assert (jobs.get(job.id).state, Group.objects.count()) == (State.QUEUED, 0)
    assert "over its timeout" in (jobs.get(job.id).error or "")


def test_a_job_whose_time_ends_while_its_outcome_is_written_is_delivered_with_its_effects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finish = pulling.finish

    def finish_late(*args: Any) -> Any:
        [run] = bench.buffer.runs.current()
        run.cancel(CancelReason.TIMED_OUT)
        return finish(*args)

    bench, job = begin(effect)
    monkeypatch.setattr(pulling, "finish", finish_late)
    settlement = perform(job)
    monkeypatch.undo()
    bench.buffer.end(job, settlement)
    bench.flusher.tick()
    assert (jobs.get(job.id).state, Group.objects.count()) == (State.DELIVERED, 1)


def begin(function: Callable[[ClaimedJob], Any]) -> tuple[FlusherBench, ClaimedJob]:
    """Begin the run of a job with a transactional handler. Return its flusher and the job."""
    [job] = claim_of(function, transactional=True)
    bench = FlusherBench([job])
    runs = bench.buffer.runs
    slot = runs.slot(0, lambda run: bench.buffer.add(run.job, outcome_of_cancelled(run)))
    runs.begin(job, slot, time.monotonic())
    return bench, job


@pytest.mark.parametrize("policy", ["nack_on_error", "reject_on_error", "ack", "manual"])
def test_error_undoes_the_effects(policy: str) -> None:
    def function(job: ClaimedJob) -> None:
        effect(job)
        job.ack()
        raise ValueError

    [job] = claim_of(function, transactional=True, ack_policy=policy)
    FlusherBench([job]).write(job, perform(job))
    assert not Group.objects.exists()


def test_silence_of_a_manual_handler_undoes_the_effects() -> None:
    [job] = claim_of(effect, transactional=True, ack_policy="manual")
    FlusherBench([job]).write(job, perform(job))
    assert not Group.objects.exists()
    assert jobs.get(job.id).state == State.QUEUED


def test_an_outcome_that_the_database_refuses_undoes_the_effects() -> None:
    query(
        "ALTER TABLE pulljobs_archived_job ADD CONSTRAINT refused CHECK (result IS NULL) NOT VALID"
    )
    try:
        [job] = claim_of(lambda job: effect(job) or 1, transactional=True)
        FlusherBench([job]).write(job, perform(job))
        assert not Group.objects.exists()
        assert jobs.get(job.id).state == State.QUEUED
        assert "can't be written" in (jobs.get(job.id).error or "")
    finally:
        query("ALTER TABLE pulljobs_archived_job DROP CONSTRAINT refused")


def test_error_at_the_commit_is_the_handlers() -> None:
    """A deferred constraint that fails at the commit undoes the settlement. The job is retried."""
    query("CREATE TABLE twice (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    try:
        [job] = claim_of(
            lambda job: query("INSERT INTO twice VALUES (1), (1)") and None, transactional=True
        )
        FlusherBench([job]).write(job, perform(job))
        assert query("SELECT count(*) FROM twice") == [(0,)]
        assert jobs.get(job.id).state == State.QUEUED
        assert "IntegrityError" in (jobs.get(job.id).error or "")
    finally:
        query("DROP TABLE twice")


@pytest.mark.parametrize("max_retries", [0, 1])
def test_a_job_that_is_nacked_in_its_transaction_is_reported_like_any_other(
    max_retries: int,
) -> None:
    """The fetcher is notified of a job that its handler nacks. Only a DEAD one is given up."""
    consumer = ConsumerFactory.create(max_retries=max_retries)
    [job] = claim_of(ClaimedJob.nack, consumer=consumer, transactional=True)
    bench = FlusherBench([job])
    bench.write(job, perform(job))
    assert bench.back == [job]
    assert bench.given_up == ([] if max_retries else [job])


def test_swallowed_database_error_is_a_failure_not_a_lost_lease() -> None:
    def function(job: ClaimedJob) -> None:
        try:
            query("SELECT 1 / 0")
        except DatabaseError:
            job.nack(error="division")
            job.settlement = None

    [job] = claim_of(function, transactional=True)
    FlusherBench([job]).write(job, perform(job))
    assert "current transaction is aborted" in (jobs.get(job.id).error or "")
    assert jobs.get(job.id).state == State.QUEUED


def test_renewing_inside_a_transaction_locks_nothing() -> None:
    """A renewal in a transactional handler does not lock the lease, which other jobs share."""
    renewed: list[Any] = []

    def function(job: ClaimedJob) -> None:
        assert job.renew()
        renewed.append(Thread(lambda: pulling.renew([other.held])).result())
        assert job.renew_at <= time.monotonic()

    job, other = claim_of(function, 2, transactional=True)
    perform(job)
    assert list(renewed[0]) == [other.held]


def test_a_settled_job_can_not_be_lost() -> None:
    """After the settlement of its job, a handler can call `renew`, and `lost` stays False."""
    seen: list[bool] = []

    def look(job: ClaimedJob) -> None:
        seen.extend([job.renew(), not job.lost])

    def function(job: ClaimedJob) -> None:
        transaction.on_commit(lambda: look(job))

    for [job] in claim_of(look, ack_policy="ack_first"), claim_of(function, transactional=True):
        perform(job)
    assert seen == [True] * 4


def test_an_error_of_a_callback_after_the_commit_does_not_retry_the_job() -> None:
    failed: list[object] = []

    def function(job: ClaimedJob) -> None:
        effect(job)
        transaction.on_commit(lambda: json.loads("no JSON"))

    [job] = claim_of(function, transactional=True)
    with ExitStack() as stack:
        stack.callback(record_with(failed.append))
        assert perform(job) is None, "an outcome would be taken for that of a lost lease"
    assert [each.error for each in failed if isinstance(each, JobFailed)] == ["JSONDecodeError"]
    assert (jobs.get(job.id).state, Group.objects.count()) == (State.DELIVERED, 1)


def test_a_commit_that_fails_retries_the_job() -> None:
    """A job whose commit fails, here at a deferred constraint, is retried."""

    def function(job: ClaimedJob) -> None:
        Group.permissions.through.objects.create(group_id=1, permission_id=0)

    [job] = claim_of(function, transactional=True)
    FlusherBench([job]).write(job, perform(job))
    assert jobs.get(job.id).state == State.QUEUED
    assert "violates foreign key constraint" in (jobs.get(job.id).error or "")


def test_ack_first_is_at_most_once() -> None:
    seen: list[str] = []

    def function(job: ClaimedJob) -> None:
        seen.append(jobs.get(job.id).state)
        assert not job.lost
        job.renew_at = min(job.renew_at, job.deadline)
        raise ValueError

    [job] = claim_of(function, ack_policy="ack_first")
    assert perform(job) is None
    assert seen == [State.DELIVERED]
    bench = FlusherBench([job])
    assert bench.in_flight.due_for_renewal() == [], "there is no lease to renew, so none to lose"


def test_ack_first_does_not_run_a_job_whose_lease_is_lost() -> None:
    ran: list[int] = []
    [job] = claim_of(lambda job: ran.append(job.id), ack_policy="ack_first")
    operating.kill([job.id], by="test")
    assert perform(job) is None
    assert ran == []
    assert job.lost


def test_ack_first_releases_a_job_whose_row_is_locked_and_does_not_take_it_for_lost() -> None:
    """A job whose row is locked is released without a run or a charge, and not taken for lost."""
    ran: list[int] = []
    [job] = claim_of(lambda job: ran.append(job.id), ack_policy="ack_first")
    bench = FlusherBench([job])
    with session() as other:
        other.execute("SELECT FROM pulljobs_job WHERE id = %s FOR UPDATE", [job.id])
        outcome = Thread(lambda: perform(job)).result()
        assert not job.lost
    assert ran == []
    bench.write(job, outcome)
    view = jobs.get(job.id)
    assert (view.state, view.retry_count, view.deliveries) == (State.QUEUED, 0, 0)


def test_ack_first_without_a_database_releases_the_job_uncharged() -> None:
    ran: list[int] = []
    [job] = claim_of(lambda job: ran.append(job.id), ack_policy="ack_first")
    outcomes = []

    def cut_off() -> None:
        connection.ensure_connection()
        connection.connection.close()
        outcomes.append(perform(job))

    thread = threading.Thread(target=cut_off)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    FlusherBench([job]).write(job, outcomes[0])
    view = jobs.get(job.id)
    assert (view.state, view.retry_count, view.deliveries, ran) == (State.QUEUED, 0, 0, [])
    connections.close_all()
