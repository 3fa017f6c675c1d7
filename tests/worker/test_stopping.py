"""A stop lets running jobs end, releases the rest unharmed, and keeps its time."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from pulljobs import jobs, pulling
from pulljobs.models import ArchivedJob, Job, Node
from tests.sessions import SLACK, blocked_by, session, wait_until
from tests.worker.processes import Stage, in_flight

pytestmark = pytest.mark.processes
UNHARMED = {"state": "QUEUED", "deliveries": 0, "retry_count": 0, "error": None}


def send_to_group(pid: int) -> None:
    """Send SIGTERM to the supervisor and the child, as systemd does."""
    os.killpg(pid, signal.SIGTERM)


def end_terminal(pid: int) -> None:
    """Send SIGHUP to all processes, as the shell and the kernel do when a terminal ends."""
    os.killpg(pid, signal.SIGHUP)
    os.killpg(pid, signal.SIGHUP)


@contextmanager
def hearing_hangups() -> Iterator[None]:
    """Start processes in this block that do not ignore SIGHUP, also if nohup runs the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "group", "terminal"])
def test_running_jobs_end_and_the_rest_is_released(stage: Stage, how: str) -> None:
    stage.consumer()
    with hearing_hangups():
        worker = stage.warm_worker("--concurrency", "2", "--graceful-timeout", "600")
    stage.until_gate(12)
    running = {line.job for line in stage.wait_for("started", 2)}
    wait_until(lambda: in_flight() > 2)
    if how == "group":
        send_to_group(worker.process.pid)
    elif how == "terminal":
        end_terminal(worker.process.pid)
    else:
        worker.signal(getattr(signal, how))
    wait_until(lambda: in_flight() == 2)
    assert worker.process.poll() is None
    stage.open_gate()
    assert worker.ended() == 0
    assert {line.job for line in stage.history("ended")} == running
    assert set(ArchivedJob.objects.values_list("job_id", flat=True)) == running
    assert Job.objects.count() == 10
    assert list(Job.objects.values(*UNHARMED).distinct()) == [UNHARMED]


def test_a_stopping_worker_goes_on_sending_heartbeats(stage: Stage) -> None:
    """Heartbeats go on while handlers run, and report that the worker serves no consumer now."""
    stage.consumer()
    [job] = stage.until_gate()
    worker = stage.worker("--graceful-timeout", "600", "--heartbeat-interval", "0.1")
    stage.wait_for("started")
    wait_until(lambda: bool(Node.objects.get().report.get("serves")))
    worker.signal()
    wait_until(lambda: Node.objects.get().report["serves"] == [])
    before = Node.objects.get().heartbeat_at
    wait_until(lambda: Node.objects.get().heartbeat_at > before)
    node = Node.objects.get()
    assert "fetcher" not in node.report["loops"]
    assert all(loop["alive"] for loop in node.report["loops"].values())
    assert [row["job"] for row in node.report["running"]] == [str(job)]
    stage.open_gate()
    assert worker.ended() == 0
    assert Node.objects.get().stopped_at is not None


def test_a_handler_that_reacts_to_the_stop_is_settled_at_once(stage: Stage) -> None:
    stage.consumer()
    stage.until_gate(heed=True)
    worker = stage.worker("--graceful-timeout", "600")
    stage.wait_for("started")
    asked = worker.signal()
    assert worker.ended() == 0
    assert time.monotonic() - asked < 5 + SLACK
    assert ArchivedJob.objects.get().state == "DELIVERED"


def test_a_handler_that_outlives_the_graceful_timeout_is_left_to_its_lease_uncharged(
    stage: Stage,
) -> None:
    stage.consumer(lease_duration=timedelta(seconds=2))
    [job] = stage.until_gate()
    worker = stage.worker("--graceful-timeout", "1")
    stage.wait_for("started")
    asked = worker.signal()
    assert worker.ended() == 0
    assert 1 <= time.monotonic() - asked < 2 + SLACK
    assert str(job) in worker.log
    assert jobs.get(job).state == "INFLIGHT"
    wait_until(lambda: pulling.reap() is not None)
    view = jobs.get(job)
    assert (view.state, view.retry_count, view.deliveries) == ("QUEUED", 0, 1)
    assert not Job.objects.get(id=job).suspect


@pytest.mark.parametrize("is_free", [True, False])
def test_an_outcome_whose_row_was_locked_is_written_or_named_at_the_end(
    stage: Stage, is_free: bool
) -> None:
    stage.consumer()
    [job] = stage.until_gate()
    worker = stage.worker("--graceful-timeout", "2")
    stage.wait_for("started")
    with session() as other:
        other.execute("SELECT FROM pulljobs_job FOR UPDATE")
        stage.open_gate()
        wait_until(lambda: blocked_by(other))
        wait_until(lambda: not blocked_by(other))
        if is_free:
            other.rollback()
        worker.signal()
        assert worker.ended() == 0
    assert (f"lease is over: {job}" in worker.log) is not is_free
    assert ArchivedJob.objects.filter(job_id=job).exists() is is_free


def test_second_signal_ends_at_once_and_charges_nothing(stage: Stage) -> None:
    stage.consumer()
    worker = stage.warm_worker("--concurrency", "2", "--graceful-timeout", "600")
    stage.until_gate(6)
    stage.wait_for("started", 2)
    wait_until(lambda: in_flight() > 2)
    worker.signal()
    wait_until(lambda: in_flight() == 2)
    asked = worker.signal()
    assert worker.ended() == 1
    assert time.monotonic() - asked < 2 + SLACK
    assert list(Job.objects.values(*UNHARMED).distinct()) == [UNHARMED]
    assert stage.history("ended") == []


def test_idle_worker_stops_at_once(stage: Stage) -> None:
    worker = stage.worker("--max-fetch-interval", "600", "--graceful-timeout", "600").ready()
    asked = worker.signal()
    assert worker.ended() == 0
    assert time.monotonic() - asked < 1 + SLACK


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_stopped_before_it_serves_ends_regularly(
    stage: Stage, number: signal.Signals
) -> None:
    begun, app = stage.directory / "begun", stage.directory / "slow_shop"
    app.mkdir()
    (app / "__init__.py").touch()
    code = f"import time, pathlib\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(600)\n"
    (app / "pull_handlers.py").write_text(code)
    path = os.pathsep.join([str(stage.directory), *sys.path])
    worker = stage.worker(WORKER_APPS="slow_shop", PYTHONPATH=path)
    wait_until(begun.exists)
    worker.signal(number)
    assert worker.ended() == 0
    assert worker.log == ""
