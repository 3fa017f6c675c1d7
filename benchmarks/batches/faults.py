"""Proof under faults: processes are killed while they settle the members of batches.

One large batch and many small ones are published. SIGKILL ends the workers that settle their
members at random moments. Each batch must publish each callback once. A batch with dead members is
redriven, and must publish them once more. At the end the benchmark doubles a callback, deletes
another, and expects its own check of the callbacks to report both.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psycopg

from benchmarks.faults.guard import Guard
from benchmarks.faults.server import OwnServer, own_server
from example_project.state import BASE_DIR

SETTINGS: Final = "benchmarks.batches.settings"
WORKER: Final = ("django", "runpullworker", "--verbosity", "0", "--concurrency", "2")
MEMBERS_OF_SMALL: Final = 50
DYING: Final = 20
"""Members of the large batch that die in its first round."""
CONNECTIONS: Final = 400
STOP_SECONDS: Final = 60
POLL_SECONDS: Final = 0.1
LIVE: Final = "SELECT count(*) FROM pulljobs_batch WHERE completed_at IS NULL"
WRONG: Final = """
WITH planned AS (
    SELECT name, ending, number AS round
    FROM pulljobs_batch AS batch
    CROSS JOIN LATERAL generate_series(1, batch.round) AS number
    CROSS JOIN LATERAL unnest(ARRAY[
        'complete',
        CASE WHEN batch.dead > 0 OR number < batch.round THEN 'dead' ELSE 'success' END
    ]) AS ending
),
published AS (
    SELECT
        headers ->> 'Pulljobs-Batch-Name' AS name,
        headers ->> 'Pulljobs-Batch-Event' AS ending,
        (headers ->> 'Pulljobs-Batch-Round')::int AS round,
        count(*) AS messages
    FROM pulljobs_message
    WHERE headers ? 'Pulljobs-Batch-Name'
    GROUP BY 1, 2, 3
)
SELECT name, ending, round, coalesce(messages, 0)
FROM planned
FULL JOIN published USING (name, ending, round)
WHERE messages IS DISTINCT FROM 1 OR planned.name IS NULL
"""
"""Callbacks that were not published exactly once. An earlier round ended with dead members."""
LATE: Final = """
SELECT max(extract(epoch FROM message.published_at - last.settled_at))
FROM pulljobs_batch AS batch
CROSS JOIN LATERAL (
    SELECT max(settled_at) AS settled_at
    FROM pulljobs_archived_job
    WHERE job_id = ANY(ARRAY(
        SELECT unnest(job_ids) FROM pulljobs_batch_part WHERE batch_id = batch.id
    ))
) AS last
JOIN pulljobs_message AS message
    ON message.headers ->> 'Pulljobs-Batch-Name' = batch.name
    AND message.headers ->> 'Pulljobs-Batch-Event' = 'complete'
    AND message.headers ->> 'Pulljobs-Batch-Round' = batch.round::text
WHERE batch.name = 'large-0'
"""
DOUBLE: Final = (
    "INSERT INTO pulljobs_message (channel_id, published_at, priority, content_type, headers,"
    " payload) SELECT channel_id, published_at, priority, content_type, headers, payload"
    " FROM pulljobs_message WHERE headers ->> 'Pulljobs-Batch-Name' = 'large-0'"
    " AND headers ->> 'Pulljobs-Batch-Event' = 'complete' LIMIT 1"
)
DELETE: Final = (
    "DELETE FROM pulljobs_message WHERE headers ->> 'Pulljobs-Batch-Name' = 'small-0'"
    " AND headers ->> 'Pulljobs-Batch-Event' = 'complete'"
)


def run(options: argparse.Namespace) -> None:
    """Settle batches while workers are killed, and report. Exit with 1 if a check fails."""
    random.seed(options.seed)
    with own_server(options.state) as server, tempfile.TemporaryDirectory() as directory:
        server.allow_connections(CONNECTIONS)
        processes = KilledWorkers(server, Path(directory))
        processes.run_to_end("benchmarks.batches.publish", "prepare")
        began = time.monotonic()
        with processes.running(options.processes), processes.killing(options.pause):
            large = _publish(processes, "large", 1, options.members, DYING)
            _publish(processes, "small", options.rounds, MEMBERS_OF_SMALL, 0)
            _wait_for_ends(server, options.patience)
            seconds = time.monotonic() - began
            command = ("django", "pulljobs", "batches", "redrive", large[0], "--yes")
            processes.run_to_end(*command)
            _wait_for_ends(server, options.patience, rounds=2)
        report = {
            "processes": options.processes,
            "members": options.members,
            "batches": options.rounds + 1,
            "kills": processes.kills,
            "seconds": round(seconds, 1),
            **_judge(server, processes),
        }
    print(json.dumps(report) if options.json else "\n".join(_lines(report)))
    if not report["clean"]:
        sys.exit(1)


class KilledWorkers:
    """Worker processes, of which random ones are killed and replaced."""

    def __init__(self, server: OwnServer, directory: Path) -> None:
        self._directory = directory
        self._environment = os.environ | {
            "DJANGO_SETTINGS_MODULE": SETTINGS,
            "FAULTS_HOST": str(server.directory),
        }
        self._running: list[subprocess.Popen[bytes]] = []
        self._guard = Guard()
        self._over = threading.Event()
        self.kills = 0

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
        """Run `count` workers during the block, and stop them at its end."""
        try:
            for _ in range(count):
                self._running.append(self._start())
            yield
            for worker in self._running:
                worker.terminate()
            for worker in self._running:
                worker.wait(STOP_SECONDS)
        finally:
            for worker in self._running:
                _kill(worker)
            self._guard.close()

    @contextmanager
    def killing(self, pause: float) -> Iterator[None]:
        """Kill and replace a random worker after each random pause, until the block ends."""
        thread = threading.Thread(target=self._kill_some, args=(pause,))
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _kill_some(self, pause: float) -> None:
        while not self._over.wait(random.uniform(0, 2 * pause)):
            number = random.randrange(len(self._running))
            _kill(self._running[number])
            self._running[number] = self._start()
            self.kills += 1

    def _start(self) -> subprocess.Popen[bytes]:
        log = self._directory / "log"
        return self._guard.start(WORKER, log=log, cwd=BASE_DIR, environment=self._environment)


def _kill(worker: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait(STOP_SECONDS)


def _publish(processes: KilledWorkers, *arguments: object) -> list[str]:
    """Publish batches and return their ids."""
    output = processes.run_to_end("benchmarks.batches.publish", *map(str, arguments))
    return output.split()


def _wait_for_ends(server: OwnServer, patience: float, rounds: int = 1) -> None:
    """Wait until all batches are complete, and the highest round of a batch is `rounds`.

    Raise TimeoutError after `patience` seconds.
    """
    late = f"SELECT max(round) < {rounds} OR ({LIVE}) > 0 FROM pulljobs_batch"
    deadline = time.monotonic() + patience
    with server.connect(autocommit=True) as connection:
        while _read(connection, late):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{_read(connection, LIVE)} batches are not complete.")
            time.sleep(POLL_SECONDS)


def _read(connection: psycopg.Connection[Any], text: str) -> Any:
    row = connection.execute(text).fetchone()
    return None if row is None else row[0]


def _judge(server: OwnServer, processes: KilledWorkers) -> dict[str, Any]:
    """Check callbacks and counts, then plant wrong callbacks to be found. Return all results."""
    with server.connect(autocommit=True) as connection:
        wrong = connection.execute(WRONG).fetchall()
        late = _read(connection, LATE)
        verified = json.loads(
            processes.run_to_end("django", "pulljobs", "verify", "--json", may_fail=True)
        )
        connection.execute(DOUBLE)
        connection.execute(DELETE)
        seen = {(name, messages) for name, _ending, _round, messages in connection.execute(WRONG)}
    planted = {("large-0", 2), ("small-0", 0)}
    return {
        "callback_after_seconds": None if late is None else round(float(late), 3),
        "wrong_callbacks": wrong,
        "verified": bool(verified["ok"]),
        "finds_planted_callbacks": planted <= seen,
        "clean": not wrong and bool(verified["ok"]) and planted <= seen,
    }


def _lines(report: dict[str, Any]) -> Iterator[str]:
    for name, value in report.items():
        if name != "clean":
            yield f"{name.replace('_', ' ')}: {value}"
    yield "clean" if report["clean"] else "NOT CLEAN"
