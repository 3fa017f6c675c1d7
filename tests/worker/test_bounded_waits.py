"""Locked rows, interpreters that are held, and errors in threads hurt only their own jobs."""

import os
import signal
from collections import Counter
from datetime import timedelta

import pytest

from pulljobs import jobs, pulling
from pulljobs.models import ArchivedJob, Job, Lease
from pulljobs.publishing import publish
from tests.factories import ConsumerFactory
from tests.sessions import query, session, wait_until
from tests.worker.processes import Stage, in_flight

pytestmark = pytest.mark.processes
LEASE = timedelta(seconds=1)
"""Duration of a lease, which is short because rows stay locked for several leases."""


def delivered() -> int:
    return ArchivedJob.objects.filter(state="DELIVERED").count()


def test_a_locked_row_delays_no_other_outcome_and_no_job_runs_twice(stage: Stage) -> None:
    stage.consumer(lease_duration=LEASE)
    [locked, *others] = stage.until_gate(4)
    worker = stage.worker("--concurrency", "4").ready()
    child = worker.child
    stage.wait_for("started", 4)
    with session() as other:
        other.execute("SELECT FROM pulljobs_job WHERE id = %s FOR UPDATE", [locked])
        stage.open_gate()
        wait_until(lambda: delivered() == len(others))
        more = stage.publish(5)
        wait_until(lambda: delivered() == len(others) + len(more))
        renewals = Lease.objects.get(job_ids__contains=[locked]).renewals
        wait_until(lambda: Lease.objects.get(job_ids__contains=[locked]).renewals > renewals + 6)
    wait_until(lambda: not Job.objects.exists())
    assert set(stage.runs().values()) == {1}
    assert set(ArchivedJob.objects.values_list("deliveries", "retry_count")) == {(1, 0)}
    assert worker.child == child
    assert worker.stop() == 0


def test_a_locked_row_of_a_dead_child_keeps_no_other_job_and_no_living_child(
    stage: Stage,
) -> None:
    stage.consumer(retry_strategy="constant:0")
    locked, _other = stage.until_gate(2)
    worker = stage.worker("--concurrency", "2").ready()
    first = worker.child
    stage.wait_for("started", 2)
    with session() as other:
        other.execute("SELECT FROM pulljobs_job WHERE id = %s FOR UPDATE", [locked])
        os.kill(first, signal.SIGKILL)
        stage.open_gate()
        wait_until(lambda: delivered() == 1)
        second = worker.child
        assert second not in (0, first)
    wait_until(lambda: delivered() == 2)
    assert worker.child == second
    assert worker.stop() == 0


def test_a_handler_that_raises_keyboard_interrupt_costs_no_thread(stage: Stage) -> None:
    stage.consumer(max_retries=0)
    bad = stage.publish(3, interrupt=True)
    good = stage.publish(6)
    worker = stage.worker("--concurrency", "1").ready()
    wait_until(lambda: delivered() == len(good))
    assert {jobs.get(job).state for job in bad} == {"DEAD"}
    assert "KeyboardInterrupt" in (jobs.get(bad[0]).error or "")
    assert worker.stop() == 0


def test_a_task_that_raises_keyboard_interrupt_does_not_end_the_event_loop(stage: Stage) -> None:
    ConsumerFactory.create(channel__name="awaited", name="plain")
    publish("awaited", {"interrupt": True, "seconds": 0.05})
    worker = stage.worker().ready()
    child = worker.child
    wait_until(lambda: delivered() == 1)
    publish("awaited", {"seconds": 0})
    wait_until(lambda: delivered() == 2)
    assert "KeyboardInterrupt" in worker.log
    assert worker.child == child
    assert worker.stop() == 0


def test_a_job_that_holds_the_interpreter_past_its_lease_is_charged_and_a_suspect(
    stage: Stage,
) -> None:
    stage.consumer(lease_duration=timedelta(seconds=4), retry_strategy="constant:60")
    [holder] = stage.publish(gil=9)
    worker = stage.worker("--concurrency", "2", "--reap-interval", "600").ready()
    child = worker.child
    stage.wait_for("started")
    wait_until(lambda: pulling.reap() is not None)
    assert Counter(Job.objects.values_list("id", "retry_count", "suspect")) == {
        (holder, 1, True): 1
    }
    wait_until(lambda: bool(stage.history("ended") or stage.history("lost")))
    assert worker.child == child
    assert worker.stop() == 0


def test_the_start_of_a_suspect_is_recorded_before_it_runs(stage: Stage) -> None:
    """The start of a suspect is recorded first, so that a crash of the machine charges it."""
    stage.consumer(retry_strategy="constant:60")
    [suspect] = stage.until_gate()
    query("UPDATE pulljobs_job SET suspect = true")
    worker = stage.worker().ready()
    stage.wait_for("started")
    assert Lease.objects.get().running_ids == [suspect]
    os.killpg(worker.process.pid, signal.SIGKILL)
    query("UPDATE pulljobs_lease SET leased_until = now() - interval '1 s'")
    assert pulling.reap() == 1
    assert Job.objects.get().retry_count == 1


def test_a_child_that_does_not_stop_is_killed_once(stage: Stage) -> None:
    stage.consumer()
    stage.publish(gil=30)
    worker = stage.worker("--concurrency", "1", "--graceful-timeout", "0.2").ready()
    stage.wait_for("started")
    wait_until(lambda: in_flight() == 1)
    worker.stop()
    assert worker.log.count("did not stop in time") == 1
