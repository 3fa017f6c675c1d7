"""Proof under faults: workers and the server are killed while schedules fire.

Half of the workers have a clock that is two minutes off. At the end each slot must have fired once
or be recorded as skipped. Then one record is deleted and one message is doubled, and `verify` has
to name both.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg

from benchmarks.faults.guard import Guard
from benchmarks.faults.roles import clock
from benchmarks.faults.server import OwnServer, own_server, wait_for
from example_project.state import BASE_DIR

SETTINGS: Final = "benchmarks.schedules.faults_settings"
WORKER: Final = ("django", "runpullworker", "--verbosity", "0", "--concurrency", "2")
CONNECTIONS: Final = 400
CLOCK_SECONDS: Final = 120.0
RESTART_EVERY: Final = 6
"""One fault in six restarts the server, the others kill a worker."""
STOP_SECONDS: Final = 60
BEHIND = (
    "SELECT count(*) FROM pulljobs_schedule"
    " WHERE next_slot < clock_timestamp() - interval '5 s' OR failures > 0"
)
RECORDED = (
    "SELECT reason, count(*),"
    " percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY late_seconds)"
    " FROM pulljobs_slot GROUP BY reason ORDER BY reason"
)
UNMATCHED = (
    "SELECT count(*) FROM pulljobs_message AS message FULL JOIN pulljobs_slot AS slot"
    " ON slot.message_id = message.id"
    " WHERE message.id IS NULL AND slot.message_id IS NOT NULL OR slot.schedule_id IS NULL"
)
DELETE_RECORD = (
    "DELETE FROM pulljobs_slot AS slot USING pulljobs_schedule AS schedule"
    " WHERE schedule.id = slot.schedule_id AND (slot.schedule_id, slot.slot_at) ="
    " (SELECT schedule_id, slot_at FROM pulljobs_slot ORDER BY random() LIMIT 1)"
    " RETURNING schedule.name"
)
DOUBLE_MESSAGE = (
    "INSERT INTO pulljobs_message (channel_id, published_at, priority, content_type, headers,"
    " payload) SELECT channel_id, published_at, priority, content_type, headers, payload"
    " FROM pulljobs_message WHERE id = (SELECT message_id FROM pulljobs_slot"
    " WHERE message_id IS NOT NULL ORDER BY random() LIMIT 1)"
    " RETURNING headers ->> 'Pulljobs-Schedule'"
)


class Faults(NamedTuple):
    """Numbers of faults that happened."""

    kills: int
    restarts: int


def run(options: argparse.Namespace) -> None:
    """Run the schedules under faults and report. Exit with 1 if a check fails."""
    random.seed(options.seed)
    with own_server(options.state) as server, tempfile.TemporaryDirectory() as directory:
        server.allow_connections(CONNECTIONS)
        workers = ScheduleWorkers(server, Path(directory))
        workers.run_to_end(
            "benchmarks.schedules.prepare", str(options.schedules), str(options.often)
        )
        with workers.running(options.workers):
            faults = _inject(server, workers, options.seconds, options.pause)
            _wait_for_last_slots(server)
        report = {"workers": options.workers, **faults._asdict(), **_judge(server, workers)}
    print(json.dumps(report) if options.json else "\n".join(_lines(report)))
    if not report["clean"]:
        sys.exit(1)


class ScheduleWorkers:
    """Worker processes, half of which follow a clock that is two minutes off."""

    def __init__(self, server: OwnServer, directory: Path) -> None:
        self._directory = directory
        self._environment = os.environ | {
            "DJANGO_SETTINGS_MODULE": SETTINGS,
            "FAULTS_HOST": str(server.directory),
        }
        self._running: list[subprocess.Popen[bytes]] = []
        self._guard = Guard()
        self._started = 0

    def run_to_end(self, *arguments: str, may_fail: bool = False) -> str:
        """Run a Python module and return its output. Raise if it fails, unless `may_fail`."""
        command = [sys.executable, "-m", *arguments]
        done = subprocess.run(
            command, env=self._environment, cwd=BASE_DIR, capture_output=True, text=True
        )
        if done.returncode and not may_fail:
            raise RuntimeError(f"{' '.join(arguments)} failed: {done.stderr}")
        return done.stdout

    @contextmanager
    def running(self, count: int) -> Iterator[None]:
        """Start workers, and stop those that live at the end."""
        try:
            for _ in range(count):
                self._start()
            yield
            for worker in self._running:
                worker.terminate()
            for worker in self._running:
                worker.wait(STOP_SECONDS)
        finally:
            for worker in self._running:
                _kill(worker)
            self._guard.close()

    def replace_one(self) -> None:
        """Kill a worker with all its processes, and start another one."""
        _kill(self._running.pop(random.randrange(len(self._running))))
        self._start()

    def _start(self) -> None:
        followed = self._directory / f"clock-{self._started}"
        clock.make(followed)
        if self._started % 2:
            clock.move(followed, CLOCK_SECONDS * random.choice((-1, 1)))
        self._started += 1
        worker = self._guard.start(
            WORKER,
            log=self._directory / "log",
            cwd=BASE_DIR,
            environment={**self._environment, "FAULTS_CLOCK": str(followed)},
        )
        self._running.append(worker)


def _kill(worker: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait(STOP_SECONDS)


def _inject(server: OwnServer, workers: ScheduleWorkers, seconds: float, pause: float) -> Faults:
    """Kill workers and restart the server at random moments. Return the numbers of both."""
    _wait_for_first_slots(server)
    kills = restarts = 0
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, random.uniform(0, 2 * pause)))
        if (kills + restarts) % RESTART_EVERY == 1:
            server.restart()
            restarts += 1
        else:
            workers.replace_one()
            kills += 1
    return Faults(kills, restarts)


def _wait_for_first_slots(server: OwnServer) -> None:
    with server.connect(autocommit=True) as connection:
        wait_for(lambda: _read(connection, "SELECT count(*) FROM pulljobs_slot") > 0, "a slot")


def _wait_for_last_slots(server: OwnServer) -> None:
    with server.connect(autocommit=True) as connection:
        wait_for(lambda: _read(connection, BEHIND) == 0, "the last slots")


def _read(connection: psycopg.Connection[Any], text: str) -> Any:
    row = connection.execute(text).fetchone()
    return None if row is None else row[0]


def _judge(server: OwnServer, workers: ScheduleWorkers) -> dict[str, Any]:
    """Verify the slots, then that two planted violations are found. Return all results."""
    result = _verify(workers)
    with server.connect(autocommit=True) as connection:
        rows = connection.execute(RECORDED).fetchall()
        unmatched = _read(connection, UNMATCHED)
        missing = _read(connection, DELETE_RECORD)
        doubled = _read(connection, DOUBLE_MESSAGE)
    named = {name: broken["slots"] for name, broken in _verify(workers)["broken"].items()}
    finds_missing = _names(named.get("slot_is_recorded", []), missing)
    finds_doubled = _names(named.get("slot_is_published_once", []), doubled)
    return {
        "schedules": result["schedules"],
        "slots": result["slots"],
        "reasons": {reason: count for reason, count, _late in rows},
        "late_p50_p99_seconds": {reason: late for reason, _count, late in rows}.get("due"),
        "broken": result["broken"],
        "messages_without_slot_or_slots_without_message": unmatched,
        "finds_planted_missing_slot": finds_missing,
        "finds_planted_doubled_slot": finds_doubled,
        "clean": result["ok"] and not unmatched and finds_missing and finds_doubled,
    }


def _names(slots: list[str], schedule: str) -> bool:
    """Return True if `verify` reported a slot of the schedule."""
    return any(slot.startswith(f"{schedule} ") for slot in slots)


def _verify(workers: ScheduleWorkers) -> Any:
    command = ("django", "pulljobs", "schedules", "verify", "--json")
    return json.loads(workers.run_to_end(*command, may_fail=True))


def _lines(report: dict[str, Any]) -> Iterator[str]:
    for name, value in report.items():
        if name != "clean":
            yield f"{name.replace('_', ' ')}: {value}"
    yield "clean" if report["clean"] else "NOT CLEAN"
