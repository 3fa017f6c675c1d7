"""Contenders of the benchmark `limit`, each of which does all queued jobs.

They are queues in raw SQL, a loop that claims and settles by pulljobs, and the worker.
"""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from django.db import connections

from benchmarks.database import CHANNEL, CONSUMER, query
from benchmarks.loops import DESIGNS, OURS, drain, make_loop, queue_all

LOOP: Final = "our claim and finish"
WORKER: Final = "runpullworker"
CONTENDERS: Final = (*DESIGNS, LOOP, WORKER)
FORK: Final = multiprocessing.get_context("fork")
START_SECONDS: Final = 60
# The time starts when the last process begins: before, the others share the cores with its imports.
DRAINED: Final = (
    "SELECT count(*), count(DISTINCT job_id), count(*) FILTER (WHERE settled_at > began),"
    " extract(epoch FROM max(settled_at) - min(began))::float8 FROM pulljobs_archived_job,"
    " (SELECT max(first) AS began FROM (SELECT min(claimed_at) AS first"
    " FROM pulljobs_archived_job GROUP BY node_id) AS node) AS start"
)

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """Figures of one drain, in which a contender does all queued jobs."""

    jobs_per_second: float
    wal_bytes: float
    """Bytes written to the WAL for each job."""
    claims: list[float]
    """Seconds of the claims, process by process. The worker has none: its claims are not timed."""


def run_contender(contender: str, jobs: int, processes: int, batch: int) -> Run:
    """Queue a job for each of the `jobs` messages, and measure how fast a contender does them."""
    design = contender if contender in DESIGNS else OURS
    queue_all(design)
    start = str(query("SELECT pg_current_wal_lsn()")[0][0])
    claims = _work(processes, batch) if contender == WORKER else _loop(design, processes, batch)
    [(wal,)] = query(f"SELECT (pg_current_wal_lsn() - '{start}')::float8")
    [(done, distinct, later, seconds)] = query(DRAINED)
    if not done == distinct == jobs:
        raise SystemExit(
            f"{contender} settled {done} rows of {distinct} jobs instead of {jobs} jobs."
        )
    return Run(int(str(later)) / float(str(seconds)), float(str(wal)) / jobs, claims)


def worker_command(batch: int, *, held: int) -> list[str]:
    """Return the command of a worker that flushes `batch` jobs at once and holds up to `held`."""
    return [
        sys.executable, "-m", "django", "runpullworker", "--only", f"{CHANNEL}/{CONSUMER}",
        "--fetch-batch", str(batch), "--flush-size", str(batch), "--max-held", str(held),
        "--verbosity", "0",
    ]  # fmt: skip


def _work(processes: int, batch: int) -> list[float]:
    command = [*worker_command(batch, held=8 * batch), "--burst"]
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "benchmarks.settings"}
    workers = [subprocess.Popen(command, env=environment) for _ in range(processes)]
    codes = [worker.wait() for worker in workers]
    if any(codes):
        raise SystemExit("A worker ended with an error: its messages are above.")
    return []


def _loop(design: str, processes: int, batch: int) -> list[float]:
    start = FORK.Barrier(processes)

    def work() -> list[float]:
        loop = make_loop(design)
        start.wait(START_SECONDS)
        return drain(loop, batch)

    return [seconds for times in run_in_processes([work] * processes) for seconds in times]


def run_in_processes(works: list[Callable[[], T]]) -> list[T]:
    """Call each function in its own process, all at once, and return the results in order."""
    connections.close_all()
    pipes = []
    for work in works:
        ours, theirs = FORK.Pipe(duplex=False)
        process = FORK.Process(target=lambda work=work, pipe=theirs: pipe.send(work()))
        process.start()
        theirs.close()
        pipes.append((process, ours))
    results = [pipe.recv() for _process, pipe in pipes]
    for process, _pipe in pipes:
        process.join()
    return results
