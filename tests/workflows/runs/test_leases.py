"""Runs, their senders and operators at the same time: no step without a lease, no signal lost."""

from contextlib import nullcontext, suppress
from datetime import timedelta
from typing import Any, Final

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connections, transaction
from psycopg.errors import ProgramLimitExceeded

from pulljobs import ids, operating
from pulljobs.errors import LeaseLost, WorkflowError
from pulljobs.models import Job
from pulljobs.states import State
from pulljobs.storage import nodes, statements
from pulljobs.testing import drain
from pulljobs.workflows import (
    Run,
    create_signal_token,
    effects,
    redrive,
    signal,
    signal_tokens,
    signals,
)
from pulljobs.workflows.models import Batch, RunSignal, WorkflowRun, WorkflowStep
from tests.factories import USING, ConsumerFactory, claimed
from tests.sessions import Thread, at_once, blocked_by, query, run, session, wait_until
from tests.workflows.runs.conftest import Bench

pytestmark = pytest.mark.django_db(transaction=True)
OTHER_TOKEN: Final = "11111111-1111-1111-1111-111111111111"


def test_a_holder_that_lost_its_lease_stores_no_step(bench: Bench) -> None:
    def fulfil(run: Run) -> None:
        with suppress(Exception):
            run.step("charge", operating.kill, [run.job.id], by="olga")
        with run.atomic("book") as step:
            Group.objects.create(name="booked")
            step.result = 1

    bench.workflow(fulfil)
    bench.start()
    [ran] = drain()
    assert ran.job.state == State.DEAD
    assert not WorkflowStep.objects.exists()
    assert not Group.objects.exists()


def test_the_writes_of_an_atomic_step_are_rolled_back_with_a_lost_lease(bench: Bench) -> None:
    def fulfil(run: Run) -> None:
        with run.atomic("book") as step:
            Group.objects.create(name="booked")
            step.result = 1
            with session() as other:
                other.execute(
                    "UPDATE pulljobs_job SET lease_token = %s WHERE id = %s",
                    [OTHER_TOKEN, run.job.id],
                )
                other.commit()

    bench.workflow(fulfil)
    bench.start()
    drain()
    assert not WorkflowStep.objects.exists()
    assert not Group.objects.exists()


def test_a_lease_that_is_lost_in_the_pause_before_a_retry_ends_the_step(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def charge() -> None:
        calls.append(1)
        raise ZeroDivisionError

    def fulfil(run: Run) -> None:
        def lose(_pause: effects.Pause) -> None:
            operating.kill([run.job.id], by="olga")
            run.job.taken_away = True  # As the worker's renewal finds out.

        monkeypatch.setattr(effects.Pause, "do", lose)
        run.step("charge", charge, retries=2)

    bench.workflow(fulfil)
    bench.start()
    [ran] = drain()
    assert isinstance(ran.exception, LeaseLost)
    assert calls == [1]


def test_a_kill_comes_before_the_step_or_after_its_commit(bench: Bench) -> None:
    run_id = bench.start()
    [held] = claimed(bench.consumer)
    step = {
        "run_id": run_id, "lease_token": held.lease_token, "name": "charge", "number": 1,
        "position": 1, "kind": "step", "function": "", "seconds": 0.0, "is_ended": True,
        "result": "1", "failure": None, "batch_id": None, "children": None,
    }  # fmt: skip
    lock = "SELECT FROM pulljobs_job WHERE id = %s FOR NO KEY UPDATE NOWAIT"
    with session() as other:
        assert run(other, "write_step", step)
        with pytest.raises(OperationalError):
            query(lock, [run_id])
        other.commit()
    query(lock, [run_id])


@pytest.mark.own_session
@pytest.mark.django_db(transaction=True)
def test_steps_keep_their_plan_and_leave_the_settings_of_the_project_alone(bench: Bench) -> None:
    seen: list[str] = []

    def look() -> None:
        [row] = statements.query(USING, "SELECT current_setting('enable_seqscan') AS scans")
        seen.append(row.scans)

    def fulfil(run: Run) -> None:
        for _number in range(2):
            with run.atomic("book") as step:
                if step.pending:
                    look()
        run.step("charge", look)

    bench.workflow(fulfil)
    bench.start()
    drain()
    look()
    assert seen == ["on"] * 4
    text = (
        "SELECT generic_plans, custom_plans FROM pg_prepared_statements"
        " WHERE statement LIKE '%INSERT INTO pulljobs_step%'"
    )
    assert [tuple(row) for row in statements.query(USING, text)] == [(3, 0)]


@pytest.mark.own_session
def test_suspensions_keep_their_plans_and_leave_the_settings_of_the_project_alone(
    bench: Bench,
) -> None:
    bench.workflow(lambda run: [run.sleep(name, timedelta(days=1)) for name in "ab"])
    bench.start()
    drain(delayed=True)
    text = (
        "SELECT current_setting('enable_seqscan'), generic_plans > 1 AS kept, custom_plans"
        " FROM pg_prepared_statements"
        " WHERE starts_with(statement, '-- Settle or give back')"
        " OR starts_with(statement, '-- Record what a suspended run waits for')"
    )
    assert [tuple(row) for row in statements.query(USING, text)] == [("on", True, 0)] * 2


def test_a_signal_meets_a_run_that_is_about_to_suspend(bench: Bench) -> None:
    sent: list[bool] = []

    def fulfil(run: Run) -> Any:
        try:
            return run.wait("approval")
        finally:  # The wait has found no signal, and the suspension is not written.
            if not sent:
                sent.append(signal(run.id, "approval", "in between"))

    bench.workflow(fulfil)
    bench.start()
    assert [ran.job.state for ran in drain()] == [State.QUEUED, State.DELIVERED]


def test_a_signal_outside_of_a_transaction_wakes_its_run_in_the_same_statement(
    bench: Bench,
) -> None:
    bench.workflow(lambda run: [run.wait("approval"), run.wait("approval")])
    run_id = bench.start()
    drain()
    params = {
        "run_id": run_id, "payload": "7", "dedupe_id": None, "is_alone": True,
        "database_channel": "pulljobs",
    }  # fmt: skip
    for name, is_alone in (("approval", False), ("other", True)):
        [sent] = statements.run(
            USING, "send_signal", {**params, "name": name, "is_alone": is_alone}
        )
        assert (sent.is_sent, sent.is_woken) == (True, False)
    with session() as holder:
        holder.execute("SELECT FROM pulljobs_job WHERE id = %s FOR UPDATE", [run_id])
        [sent] = statements.run(USING, "send_signal", {**params, "name": "approval"})
        assert not sent.is_woken, "it waits for no lock of the job"
    [sent] = statements.run(USING, "send_signal", {**params, "name": "approval"})
    assert sent.is_woken
    [ran] = drain()
    assert ran.job.result == [7, 7]


@pytest.mark.own_session
def test_a_signal_is_on_disk_before_its_sender_goes_on(bench: Bench) -> None:
    """A sender waits until its signal is on disk, even if another just stored that dedupe id."""
    run_id = bench.start()
    query("SET synchronous_commit = on")

    def send(dedupe_id: str | None, *, joins: bool) -> bool:
        [[before]] = query("SELECT pg_current_wal_insert_lsn()::text")
        with transaction.atomic(USING) if joins else nullcontext():
            is_sent = signal(run_id, "approval", dedupe_id=dedupe_id)
        assert query("SELECT pg_current_wal_flush_lsn() > %s::pg_lsn", [before]) == [(True,)]
        return is_sent

    assert send(None, joins=False)
    for dedupe_id, joins in (("first", False), ("second", True)):
        with session() as other:
            run(
                other,
                "send_signal",
                {
                    "run_id": run_id, "name": "approval", "payload": "1", "dedupe_id": dedupe_id,
                    "is_alone": True, "database_channel": "pulljobs",
                },
            )  # fmt: skip
            other.commit()
        assert not send(dedupe_id, joins=joins)
    query("RESET synchronous_commit")


def test_a_signal_is_on_disk_before_its_run_wakes_where_a_flush_may_reach_another_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with transaction.atomic(USING):
        assert not signals.is_alone(USING)
    given = connections[USING].settings_dict
    monkeypatch.setitem(given, "DISABLE_SERVER_SIDE_CURSORS", True)
    assert not signals.is_alone(USING)
    monkeypatch.setitem(given, "DISABLE_SERVER_SIDE_CURSORS", False)
    assert signals.is_alone(USING)


def test_a_signal_is_sent_and_wakes_its_run_while_the_queue_of_notifications_is_full(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal is stored without a notification if that is refused. Polling finds its run."""

    def refuse(using: str, name: str, params: Any, **more: Any) -> Any:
        if params.get("is_alone"):
            raise OperationalError from ProgramLimitExceeded("too many notifications")
        return statements.run(using, name, params, **more)

    bench.workflow(lambda run: run.wait("approval"))
    run_id = bench.start()
    drain()
    monkeypatch.setattr(signals, "run", refuse)
    assert signal(run_id, "approval", 7)
    assert drain()[-1].job.result == 7


def test_a_claim_takes_a_signal_only_under_its_lease_and_for_its_version(bench: Bench) -> None:
    bench.workflow(lambda run: run.wait("approval"))
    run_id = bench.start()
    drain()
    assert signal(run_id, "approval", 7)
    [held] = claimed(bench.consumer)
    begin = {
        "run_id": run_id, "message_id": Job.objects.get().message_id,
        "lease_token": held.lease_token, "workflow": "", "version": 1, "oldest_version": 1,
    }  # fmt: skip
    for wrong in ({"lease_token": OTHER_TOKEN}, {"version": 2, "oldest_version": 2}):
        [step] = statements.run(USING, "begin_run", {**begin, **wrong})
        assert (step.is_ended, step.is_taken) == (False, False)
    for is_taken in (True, False):
        [step] = statements.run(USING, "begin_run", begin)
        assert (step.is_ended, step.is_taken, step.result) == (True, is_taken, 7)
    assert WorkflowRun.objects.get().waiting_for is None
    assert not RunSignal.objects.filter(consumed_at=None).exists()


def test_a_sender_that_dies_after_its_commit_delays_the_run_only(bench: Bench) -> None:
    bench.workflow(lambda run: run.wait("approval"))
    run_id = bench.start()
    drain()
    assert WorkflowRun.objects.get().waiting_for == "approval"
    before = ids.first_of(nodes.clock(USING) - timedelta(minutes=1))
    RunSignal.objects.create(id=before, run_id=run_id, name="approval", payload=7)
    late = Job.objects.filter(available_at__gt=nodes.clock(USING) + timedelta(days=1))
    assert late.exists()
    assert not signals.sweep(USING)
    assert not late.exists()
    [ran] = drain()
    assert ran.job.result == 7
    assert not RunSignal.objects.filter(is_new=True).exists()


def test_a_sweep_reaches_signals_after_more_of_locked_runs_than_it_reads_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.workflow(lambda run: run.wait("approval"))
    *locked, free = [bench.start() for _run in range(4)]
    drain()
    before = ids.first_of(nodes.clock(USING) - timedelta(minutes=1))
    for number, run_id in enumerate((*locked, free)):
        RunSignal.objects.create(id=before + number, run_id=run_id, name="approval")
    monkeypatch.setattr(signals, "AT_ONCE", 1)
    with session() as holder:
        holder.execute("SELECT FROM pulljobs_job WHERE id = ANY(%s) FOR UPDATE", [locked])
        assert signals.sweep(USING)
        assert not signals.sweep(USING)
    late = Job.objects.filter(available_at__gt=nodes.clock(USING) + timedelta(days=1))
    assert sorted(late.values_list("id", flat=True)) == locked


def test_a_sweep_of_late_signals_passes_over_locked_runs(bench: Bench) -> None:
    bench.workflow(lambda run: run.wait("approval"))
    locked, free = bench.start(), bench.start()
    drain()
    before = ids.first_of(nodes.clock(USING) - timedelta(minutes=1))
    for number, run_id in enumerate((locked, free)):
        RunSignal.objects.create(id=before + number, run_id=run_id, name="approval")
    with session() as holder:
        holder.execute("SELECT FROM pulljobs_job WHERE id = %s FOR UPDATE", [locked])
        signals.sweep(USING)
    late = Job.objects.filter(available_at__gt=nodes.clock(USING) + timedelta(days=1))
    assert list(late.values_list("id", flat=True)) == [locked]
    signals.sweep(USING)
    assert not late.exists()
    assert not RunSignal.objects.filter(is_new=True).exists()


def test_the_redrive_of_a_killed_run_waits_for_no_batch(bench: Bench) -> None:
    """The redrive of a killed run waits for no lock of a batch, so that it cannot deadlock."""
    parts = ConsumerFactory.create()
    bench.workflow(lambda run: run.gather("parts", [1], channel=parts.channel.name))
    run_id = bench.start()
    drain(bench.consumer.channel.name)
    operating.kill([run_id], by="olga")
    with transaction.atomic(using=USING):
        query("SET LOCAL lock_timeout = '1s'")
        with session() as decision:
            decision.execute("SELECT FROM pulljobs_batch FOR UPDATE")
            redrive(run_id)
    assert not Job.objects.filter(state=State.DEAD).exists()
    assert Batch.objects.get().cancelled_at is None


def test_an_open_transaction_of_a_sender_blocks_no_claim(bench: Bench) -> None:
    bench.workflow(lambda run: run.step("charge", lambda: 1))
    run_id = bench.start()
    with session() as other:
        run(
            other,
            "send_signal",
            {
                "run_id": run_id,
                "name": "approval",
                "payload": "1",
                "dedupe_id": "once",
                "is_alone": False,
                "database_channel": "pulljobs",
            },
        )
        [ran] = drain()
    assert ran.job.state == State.DELIVERED
    assert not Job.objects.exists()


def test_a_wake_up_without_the_lock_leaves_the_signal_of_a_run_in_flight_new(bench: Bench) -> None:
    """A wake-up without the lock of the job leaves the signal new, for the next sweep to find."""
    run_id = bench.start()
    [held] = claimed(bench.consumer)
    RunSignal.objects.create(run_id=run_id, name="approval")
    assert held.job_id == run_id
    for is_alone in (True, False):
        params = {"run_ids": [run_id], "is_alone": is_alone, "database_channel": "pulljobs"}
        assert not statements.run(USING, "wake_runs", params)
        assert RunSignal.objects.get().is_new is is_alone


def test_of_several_senders_at_once_with_a_dedupe_id_one_sends_the_signal(bench: Bench) -> None:
    run_id = bench.start()
    sent = at_once(8, lambda number: signal(run_id, "approval", number, dedupe_id="one"))
    assert (sum(sent), RunSignal.objects.count()) == (1, 1)


def test_a_token_that_another_transaction_uses_up_meanwhile_sends_nothing(bench: Bench) -> None:
    token = create_signal_token(bench.start(), "approval")
    with session() as other:
        other.execute("UPDATE pulljobs_signal_token SET used_at = now()")
        late = Thread(lambda: signal_tokens.send(token, None))
        wait_until(lambda: blocked_by(other))
        other.commit()
    with pytest.raises(WorkflowError, match="used"):
        late.result()
    assert not RunSignal.objects.exists()
