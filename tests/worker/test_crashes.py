"""A crash charges a retry to the jobs that ran, and nothing to those that only waited."""

import logging
import os
import resource
import signal
from functools import partial
from multiprocessing import get_context
from types import SimpleNamespace
from typing import NoReturn
from uuid import uuid4

import pytest

from pulljobs import jobs
from pulljobs.models import ArchivedJob, Job, Node
from pulljobs.worker import child_slot, shared_state
from pulljobs.worker.debounce import OBSERVATIONS
from pulljobs.worker.lease_recovery import DeadChild, LeaseRecovery
from tests.factories import USING
from tests.sessions import pass_time, wait_until
from tests.worker.claiming import limits
from tests.worker.processes import Stage, in_flight

pytestmark = pytest.mark.processes


def test_a_killed_child_charges_only_the_jobs_that_it_ran(stage: Stage) -> None:
    stage.consumer(retry_strategy="constant:60")
    worker = stage.warm_worker("--concurrency", "2")
    stage.until_gate(12)
    running = {line.job for line in stage.wait_for("started", 2)}
    wait_until(lambda: in_flight() > 2)
    first = worker.child
    os.kill(first, signal.SIGKILL)
    stage.wait_for("started", 4)
    assert worker.child != first
    stage.open_gate()
    wait_until(lambda: Job.objects.count() == 2)
    charged = set(Job.objects.values_list("id", "state", "retry_count", "deliveries"))
    assert charged == {(job, "QUEUED", 1, 1) for job in running}
    unharmed = ArchivedJob.objects.values_list("state", "retry_count", "deliveries")
    assert list(unharmed) == [("DELIVERED", 0, 1)] * 10
    wait_until(lambda: Node.objects.get(name__endswith=f":{first}").stopped_at is not None)
    assert worker.stop() == 0


def test_job_that_kills_its_worker_ends_dead_and_the_others_delivered(stage: Stage) -> None:
    stage.consumer(max_retries=1)
    [killer] = stage.publish(kill=True)
    others = stage.publish(20)
    worker = stage.worker("--concurrency", "2")
    wait_until(lambda: jobs.get(killer).state == "DEAD" and Job.objects.count() == 1)
    assert stage.runs()[killer] == 2
    assert jobs.get(killer).reason == "retries_exhausted"
    assert "crashed" in (jobs.get(killer).error or "")
    delivered = ArchivedJob.objects.filter(state="DELIVERED")
    assert set(delivered.values_list("job_id", flat=True)) == set(others)
    assert worker.stop() == 0


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs Linux")
def test_a_child_that_can_not_be_started_is_tried_again_until_it_can(stage: Stage) -> None:
    """The supervisor tries to start a child again until it can open enough files for it."""
    stage.consumer()
    worker = stage.worker().ready()
    first, pid, kind = worker.child, worker.process.pid, resource.RLIMIT_NOFILE
    before = resource.prlimit(pid, kind, (3, resource.getrlimit(kind)[1]))
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: worker.log.count("no child can be started") > 1)
    resource.prlimit(pid, kind, before)
    wait_until(lambda: worker.child not in (0, first))
    assert worker.stop() == 0


def test_the_supervisor_survives_a_thousand_failures_in_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_args: object) -> NoReturn:
        raise BlockingIOError

    monkeypatch.setattr(child_slot, "ChildProcess", refuse)
    monkeypatch.setattr(child_slot, "LONGEST_PAUSE", 0.0)
    recovery = LeaseRecovery(USING)
    empty = child_slot.ChildSlot(
        get_context("spawn"), limits(), recovery.add, recovery.note_running, 0
    )
    for _failure in range(1100):
        empty.tick(None)
    assert empty.exit_code is None


class SilentChild:
    """Child process whose heartbeats are overdue, as all are after a pause of the machine."""

    pid = 1
    exit_code: int | None = None
    is_unhealthy = True
    is_stopping = is_killed = is_late = is_silent = was_unhealthy = False

    def __init__(self, *_args: object) -> None:
        self.stops = 0

    def stop(self, by: float) -> None:
        self.stops += 1


class ChildAtItsStart(SilentChild):
    """Child process that SIGTERM ended before it had a handler for the signal."""

    is_unhealthy, exit_code = False, -signal.SIGTERM
    shared_state = SimpleNamespace(has_left=False, running=list)
    order = SimpleNamespace(node_id=uuid4())
    began_at = 0.0

    def close(self) -> None:
        pass


@pytest.mark.parametrize("stop_by", [None, 1.0])
def test_a_stop_while_children_start_is_no_error(
    stop_by: float | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(child_slot, "ChildProcess", ChildAtItsStart)
    deaths: list[DeadChild] = []
    slot = child_slot.ChildSlot(
        get_context("spawn"), limits(), deaths.append, lambda node_id, running: None, 0
    )
    slot.tick(None)
    with caplog.at_level(logging.INFO, "pulljobs.worker"):
        slot.tick(stop_by)
    [level] = [record.levelno for record in caplog.records if "ended with -15" in record.message]
    assert level == (logging.ERROR if stop_by is None else logging.INFO)


def test_a_child_that_looks_unhealthy_for_a_moment_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_slot, "ChildProcess", SilentChild)
    recovery = LeaseRecovery(USING)
    slot = child_slot.ChildSlot(
        get_context("spawn"), limits(), recovery.add, recovery.note_running, 0
    )
    for _look in range(OBSERVATIONS):  # the first starts the child
        slot.tick(None)
    assert vars(slot.child)["stops"] == 0
    slot.tick(None)
    assert vars(slot.child)["stops"] == 1


def test_a_handler_that_ends_its_process_is_charged_whatever_the_exit_code(stage: Stage) -> None:
    """A job whose handler ends the process is charged, even with an exit code that children use."""
    stage.consumer(max_retries=0)
    [innocent] = stage.publish()
    codes = (0, shared_state.RETIRED, shared_state.MISCONFIGURED)
    killers = [job for code in codes for job in stage.publish(exit=code)]
    others = [innocent, *stage.publish(5)]
    worker = stage.worker("--concurrency", "1", "--burst")
    assert worker.ended() == 0
    dead = Job.objects.values_list("id", "reason", "deliveries")
    assert sorted(dead) == [(job, "retries_exhausted", 1) for job in killers]
    delivered = ArchivedJob.objects.filter(state="DELIVERED")
    unharmed = delivered.values_list("job_id", "retry_count", "deliveries")
    assert sorted(unharmed) == [(job, 0, 1) for job in others]
    for code in codes:
        assert f"ended with {code} while running 1 job" in worker.log


def test_child_whose_supervisor_is_killed_stops_by_itself(stage: Stage) -> None:
    stage.consumer()
    worker = stage.warm_worker("--concurrency", "2", "--graceful-timeout", "600")
    stage.until_gate(12)
    running = {line.job for line in stage.wait_for("started", 2)}
    wait_until(lambda: in_flight() > 2)
    worker.signal(signal.SIGKILL)
    wait_until(lambda: in_flight() == 2)
    stage.open_gate()
    wait_until(lambda: not Node.objects.filter(stopped_at=None).exists())
    assert set(ArchivedJob.objects.values_list("job_id", flat=True)) == running
    unharmed = Job.objects.values_list("state", "retry_count", "deliveries")
    assert set(unharmed) == {("QUEUED", 0, 0)}
    assert len(unharmed) == 10


def test_after_both_processes_are_killed_the_leases_expire_and_all_jobs_are_done(
    stage: Stage,
) -> None:
    stage.consumer()
    worker = stage.warm_worker("--concurrency", "2")
    every = stage.until_gate(12)
    stage.wait_for("started", 2)
    wait_until(lambda: in_flight() > 2)
    worker.kill_all()
    pass_time()
    stage.open_gate()
    stage.worker("--reap-interval", "0.2")
    wait_until(lambda: not Job.objects.exists())
    delivered = ArchivedJob.objects.filter(state="DELIVERED").values_list("job_id", flat=True)
    assert sorted(delivered) == every
    assert sum(stage.runs().values()) <= 12 + 2


def test_a_child_that_another_process_stops_is_started_again(stage: Stage) -> None:
    stage.consumer()
    worker = stage.worker().ready()
    first = worker.child
    os.kill(first, signal.SIGTERM)
    wait_until(lambda: worker.child not in (0, first))
    assert worker.stop() == 0


def test_children_are_replaced_although_the_parent_ignores_their_ends(stage: Stage) -> None:
    """A killed child is replaced even if the worker has inherited that SIGCHLD is ignored."""
    stage.consumer()
    stage.popen = {"preexec_fn": partial(signal.signal, signal.SIGCHLD, signal.SIG_IGN)}
    worker = stage.worker().ready()
    first = worker.child
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: worker.child not in (0, first))
    assert worker.stop() == 0
