"""Supervisor and children: their number, their replacement, and their health."""

import logging
import os
import re
import signal
import socket
import urllib.error
import urllib.request
from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from pulljobs.management.parsing import parse_size
from pulljobs.models import ArchivedJob, Channel, Job, Node
from pulljobs.publishing import publish_many
from pulljobs.storage import nodes
from pulljobs.worker.probes import ProbeServer
from tests.factories import USING, ConsumerFactory
from tests.sessions import wait_until
from tests.worker.processes import Stage, Worker

SIZE = int(os.environ.get("PULLJOBS_TEST_POISONED", "200"))
HOWS = ["die", "hang"] if SIZE >= 1000 else ["die"]
UNHEALTHY = "is unhealthy"
processes = pytest.mark.processes


def living() -> list[Node]:
    return list(Node.objects.filter(stopped_at=None))


@processes
def test_a_poison_job_dies_of_its_deliveries_and_charges_no_job_that_had_not_started(
    stage: Stage,
) -> None:
    stage.consumer(max_deliveries=3, max_retries=10)
    good = stage.publish(SIZE // 2)
    [poison] = stage.publish(exit=3)
    good += stage.publish(SIZE - SIZE // 2)
    worker = stage.worker("--processes", "2", "--concurrency", "8")
    wait_until(lambda: list(Job.objects.values_list("id", "state")) == [(poison, "DEAD")], 120)
    dead = Job.objects.get()
    assert (dead.reason, dead.deliveries) == ("max_deliveries", 3)
    assert stage.runs()[poison] == 3
    delivered = ArchivedJob.objects.filter(state="DELIVERED")
    assert sorted(delivered.values_list("job_id", flat=True)) == sorted(good)
    charged = sum(delivered.values_list("retry_count", flat=True))
    neighbours = sum(
        int(count) - 1 for count in re.findall(r"while running (\d+) jobs?", worker.log)
    )
    assert charged <= neighbours <= 7, "jobs that ran next to it, and none that waited"
    assert worker.stop() == 0


@processes
def test_each_process_is_a_child_of_its_own_and_one_that_dies_leaves_the_others(
    stage: Stage,
) -> None:
    stage.consumer()
    stage.until_gate(8)
    worker = stage.worker("--processes", "2", "--concurrency", "2")
    running = stage.wait_for("started", 4)
    first, second = {line.pid for line in running}
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: len(stage.history("started")) > 4)
    assert any(node.name.endswith(f":{second}") for node in living())
    stage.open_gate()
    wait_until(lambda: not Job.objects.exists())
    unharmed = {line.job for line in running if line.pid == second}
    rows = ArchivedJob.objects.filter(job_id__in=unharmed).values_list("retry_count", "deliveries")
    assert list(rows) == [(0, 1)] * 2
    assert worker.stop() == 0


@processes
@pytest.mark.parametrize(("how", "status"), [("exits", 3), ("raises", 1), ("returns", 0)])
def test_a_process_that_a_handler_forks_ends_and_is_no_worker(
    stage: Stage, how: str, status: int
) -> None:
    """A forked process ends, runs no waiting jobs, and leaves its parent's transaction alone."""
    channels = ["forked", "forked-transactional", "forked-first", "forked-async"]
    for name in channels:
        ConsumerFactory.create(channel=Channel.objects.create(name=name), name="plain")
        publish_many(name, [{"copy": how}] * 3)
    worker = stage.worker("--concurrency", "1")
    wait_until(lambda: ArchivedJob.objects.count() == 12)
    stage.wait_for(f"copy-{status}", 3)
    assert set(stage.runs().values()) == {1}
    settled = ArchivedJob.objects.exclude(consumer__channel__name="forked-first")
    assert list(settled.values_list("result", flat=True)) == [status] * 9
    assert set(ArchivedJob.objects.values_list("state", "retry_count")) == {("DELIVERED", 0)}
    assert worker.stop() == 0


@processes
def test_a_process_that_a_handler_forks_can_be_terminated(stage: Stage) -> None:
    ConsumerFactory.create(channel=Channel.objects.create(name="terminated"), name="plain")
    publish_many("terminated", [{}])
    stage.worker()
    wait_until(lambda: ArchivedJob.objects.exists())
    assert ArchivedJob.objects.get().result == -signal.SIGTERM


@processes
def test_once_claims_once_and_ends(stage: Stage) -> None:
    stage.consumer()
    stage.publish(20)
    assert stage.worker("--once", "--fetch-batch", "5").ended() == 0
    assert ArchivedJob.objects.count() == 5
    assert set(Job.objects.values_list("state", "deliveries")) == {("QUEUED", 0)}


def unread() -> dict[str, Any]:
    reading, writing = os.pipe()
    os.close(reading)
    return {"stdout": writing}


@processes
@pytest.mark.parametrize(
    "popen",
    [
        pytest.param(lambda: {"stdout": None, "preexec_fn": partial(os.closerange, 0, 2)}, id="no"),
        pytest.param(lambda: {"stdout": os.open("/dev/full", os.O_WRONLY)}, id="full"),
        pytest.param(unread, id="not read"),
    ],
)
def test_a_worker_that_cannot_write_to_its_stdout_works(
    stage: Stage, popen: Callable[[], dict[str, Any]]
) -> None:
    stage.consumer()
    stage.publish(3, quiet=True)
    stage.popen = popen()
    worker = stage.worker("--burst")
    assert worker.ended() == 0
    assert ArchivedJob.objects.count() == 3
    assert worker.log == ""


@processes
def test_worn_children_are_replaced_and_nothing_is_charged(stage: Stage) -> None:
    stage.consumer()
    stage.publish(200, seconds=0.01)
    worker = stage.worker("--concurrency", "4", "--max-held", "20", "--max-jobs", "40")
    wait_until(lambda: Node.objects.exclude(stopped_at=None).count() >= 2)
    assert "will be replaced by a new one" in worker.log
    assert set(ArchivedJob.objects.values_list("retry_count", "deliveries")) == {(0, 1)}
    assert set(stage.runs().values()) == {1}
    assert worker.stop() == 0


@pytest.mark.own_session
@processes
def test_signal_and_heartbeats_report_the_state_of_each_loop_and_slot(stage: Stage) -> None:
    """The log on SIGUSR1 and heartbeats name loops and jobs. A frozen child sends no heartbeat."""
    stage.consumer(lease_duration=timedelta(seconds=60))
    [job] = stage.until_gate()
    worker = stage.worker(
        *("--concurrency", "2", "--heartbeat-interval", "0.1", "--reap-interval", "0.1")
    )
    stage.wait_for("started")
    worker.signal(signal.SIGUSR1)
    wait_until(lambda: "held 1" in worker.log)
    assert f"slot 0: job {job} of script/plain" in worker.log or f"slot 1: job {job}" in worker.log
    assert "tests/worker/app/pull_handlers.py:" in worker.log
    for loop in ("fetcher", "renewer", "flusher", "reaper", "listener", "watchdog"):
        assert f"{loop}: " in worker.log
    wait_until(lambda: bool(Node.objects.get().report.get("running")))
    report = Node.objects.get().report
    assert [row["job"] for row in report["running"]] == [str(job)]
    assert all(loop["alive"] for loop in report["loops"].values())
    os.kill(worker.child, signal.SIGSTOP)
    wait_until(lambda: nodes.clock(USING) - Node.objects.get().heartbeat_at > timedelta(seconds=5))
    assert Job.objects.get().state == "INFLIGHT", "it keeps its jobs until their leases expire"


@processes
def test_the_first_heartbeat_reports_living_loops_and_the_served_consumers(stage: Stage) -> None:
    """The first heartbeat already reports the loops as alive, and the consumers that are served."""
    stage.consumer()
    worker = stage.worker()
    wait_until(lambda: any(node.report for node in living()))
    report = Node.objects.get().report
    assert all(loop["alive"] for loop in report["loops"].values())
    assert "script/plain" in report["serves"]
    assert worker.stop() == 0


def probe(worker: Worker, path: str) -> int:
    """Return the HTTP status of a health probe of the worker, such as `/readyz`."""
    wait_until(lambda: "/livez and" in worker.log)
    address = worker.log.partition("answers ")[2].partition("/livez")[0]
    try:
        with urllib.request.urlopen(f"{address}{path}", timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


@processes
@pytest.mark.parametrize("how", HOWS)
def test_a_child_whose_loop_dies_or_hangs_is_unhealthy_and_is_replaced(
    stage: Stage, tmp_path: Path, how: str
) -> None:
    """The health probe gets 503, a new child takes over, and no job is charged a retry."""
    stage.consumer(lease_duration=timedelta(minutes=5))  # Its jobs must not wait for that.
    stage.environment |= {"WORKER_APPS": "tests.worker.sabotage"}
    worker = stage.worker(
        *("--health-port", "0", "--liveness-timeout", "3", "--graceful-timeout", "0.5"),
        SABOTAGE=f"{how}:{tmp_path / 'done'}",
    )

    def is_noticed() -> bool:
        (tmp_path / "done").unlink(missing_ok=True)
        stage.publish(3)
        before, statuses = worker.log.count(UNHEALTHY), set[int]()

        def is_decided() -> bool:
            statuses.add(probe(worker, "/livez"))
            return 503 in statuses or worker.log.count(UNHEALTHY) > before

        wait_until(is_decided)
        return 503 in statuses

    assert any(is_noticed() for _try in range(5))
    wait_until(lambda: not Job.objects.exists())
    wait_until(lambda: probe(worker, "/readyz") == 200)
    assert probe(worker, "/livez") == 200
    assert probe(worker, "/") == 404
    assert len(living()) == 1 < Node.objects.count()
    assert set(ArchivedJob.objects.values_list("retry_count", flat=True)) == {0}
    assert worker.stop() == 0


@processes
def test_a_child_that_may_start_no_threads_says_so_and_is_replaced(
    stage: Stage, tmp_path: Path
) -> None:
    stage.consumer()
    stage.environment |= {"WORKER_APPS": "tests.worker.sabotage"}
    worker = stage.worker(SABOTAGE=f"threads:{tmp_path / 'done'}")
    stage.publish(1)
    wait_until(lambda: not Job.objects.exists())
    assert "The system starts no more threads, and this process will be replaced" in worker.log
    assert "Traceback" not in worker.log
    assert worker.stop() == 0


@pytest.mark.parametrize(
    ("port", "host", "message"),
    [
        (1, "203.0.113.1", "choose another --health-port"),
        (1, "a..b", "choose another --health-port or --health-host"),
        (70000, "::", "HEALTH_PORT.*: 70000 is no port"),
        (70000, "", "HEALTH_PORT.*: 70000 is no port"),
    ],
)
def test_an_invalid_or_taken_port_is_a_clear_error(port: int, host: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        call_command("runpullworker", health_port=port, health_host=host)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "", "::1", "::"])
def test_probes_answer_at_addresses_of_both_families(
    caplog: pytest.LogCaptureFixture, host: str
) -> None:
    if ":" in host and not has_ipv6():
        pytest.skip("needs IPv6")
    with caplog.at_level(logging.INFO), ProbeServer((host, 0), list):
        [url] = re.findall(r"http://\S+/livez", caplog.text)
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert answer.status == 200


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_sizes_have_units() -> None:
    """Flags of sizes accept a unit, such as 512M, and refuse other texts."""
    assert [parse_size(text) for text in ("1024", "512M", "1.5g", "2K")] == [
        1024,
        512 * 2**20,
        3 * 2**29,
        2048,
    ]
    for text in ("5X", "", "inf", "nan", "-1", "-5M"):
        with pytest.raises(ArgumentTypeError, match="is no size such as 1024, 512M or 2G"):
            parse_size(text)
