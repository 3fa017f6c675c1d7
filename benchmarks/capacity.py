"""`python -m benchmarks capacity`: resources that a job takes here, and a check of predictions."""

import argparse
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from statistics import median
from typing import Any, Final, NamedTuple

import psutil
import psycopg

from benchmarks.contenders import worker_command
from benchmarks.database import CHANNEL, bare_connection, consumer, own_database, query
from benchmarks.peers.processes import ServerCpu, cpu_of
from benchmarks.report import Table, print_report
from pulljobs.capacity import MICRO, Costs, Load
from pulljobs.publishing import publish, publish_many

SMALL, LARGE, BETWEEN = 100, 1_000, 500
"""Bytes of the payloads of the runs that are measured, and of the run that is predicted."""
ALONE: Final = 20
"""One message in this many is published alone, the others in batches."""
BATCH, SMALL_BATCH = 1_000, 50
FETCH: Final = 500
COMMITS: Final = 500
LOOK_SECONDS: Final = 0.05
START_SECONDS: Final = 60
EMPTIED: Final = "pulljobs_job, pulljobs_lease, pulljobs_archived_job, pulljobs_message"
DISK: Final = (
    "SELECT sum(pg_total_relation_size(relid))::float8 FROM (VALUES ('pulljobs_message'),"
    " ('pulljobs_archived_job')) AS parent (name), pg_partition_tree(name::regclass)"
)
RATE: Final = (
    "SELECT count(*) / extract(epoch FROM max(settled_at) - min(claimed_at))::float8"
    " FROM pulljobs_archived_job"
)


class Spent(NamedTuple):
    """CPU time and WAL of the server during a call."""

    seconds: float
    """Seconds of CPU time."""
    wal: float
    """Bytes of WAL."""


class Sample(NamedTuple):
    """Resources of a job with one size of payload: CPU time in seconds, WAL and disk in bytes."""

    alone: float
    """CPU time of the server, for a message that is published alone."""
    batch: float
    """CPU time of the server, for a message that is published in a batch."""
    run: float
    """CPU time of the server, to claim and settle."""
    worker: float
    wal: float
    disk: float
    rate: float
    """Jobs a second of the drain."""


def run(options: argparse.Namespace) -> None:
    """Measure the costs, write them to a file if one is given, and check predictions by runs."""
    with own_database(), bare_connection() as watching:
        meter = Meter(watching)
        small, large = (_sample_often(options, meter, payload) for payload in (SMALL, LARGE))
        costs = fit_costs(small, large, _commits())
        between = _sample_often(options, meter, BETWEEN, batch=SMALL_BATCH)
        together = _sample_often(options, meter, BETWEEN, processes=_cores())
    if options.costs is not None:
        options.costs.write_text(json.dumps(asdict(costs), indent=2) + "\n")
    figures = {name: round(value, 1) for name, value in asdict(costs).items()}
    table = compare(costs, between, together.rate, _cores())
    print_report({f"Payloads of {BETWEEN} bytes": table}, figures, as_json=options.json)


def fit_costs(small: Sample, large: Sample, commits: float) -> Costs:
    """Compute the costs of a job, and of the bytes of payloads, from samples with two sizes."""
    more = (large.batch + large.run - small.batch - small.run) / MICRO
    payload = max(0.0, more) / ((LARGE - SMALL) / 1_000)
    ours = payload * SMALL / 1_000
    return Costs(
        publish_us=small.alone / MICRO - ours,
        batch_us=small.batch / MICRO - ours,
        run_us=small.run / MICRO,
        payload_us=payload,
        worker_us=small.worker / MICRO,
        wal_bytes=small.wal - SMALL,
        row_bytes=small.disk - SMALL,
        commits=commits,
    )


def compare(costs: Costs, measured: Sample, rate: float, cores: int) -> Table:
    """Return rows with predicted and measured figures for 500-byte payloads, and their ratios."""
    load = Load(rate=1, payload=BETWEEN, batch=SMALL_BATCH)
    drained = MICRO * costs.run_us
    pairs = {
        "server, us a job": (
            load.server_seconds(costs) / MICRO,
            (measured.batch + measured.run) / MICRO,
        ),
        "worker, us a job": (costs.worker_us, measured.worker / MICRO),
        "WAL, bytes a job": (costs.wal_bytes + BETWEEN, measured.wal),
        "disk, bytes a job": (costs.row_bytes + BETWEEN, measured.disk),
        "drain, jobs a second": (cores / (drained + costs.worker_us * MICRO), rate),
    }
    return [
        {"": name, "predicted": predicted, "measured": value, "ratio": predicted / value}
        for name, (predicted, value) in pairs.items()
    ]


class Meter:
    """Meter of the server's CPU time and WAL, which reads them in a session of its own."""

    def __init__(self, watching: psycopg.Connection[Any]) -> None:
        self._watching, self._server = watching, ServerCpu(watching)

    def measure(self, work: Callable[[], object]) -> Spent:
        """Call a function, and return the CPU time and WAL of the server meanwhile."""
        begin = self._read()
        work()
        end = self._read()
        return Spent(end.seconds - begin.seconds, end.wal - begin.wal)

    def _read(self) -> Spent:
        seconds = self._server.cpu()
        if seconds is None:
            raise SystemExit("The server runs on another machine: run the benchmark there.")
        [wal] = self._watching.execute(
            "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8"
        ).fetchone() or [0.0]
        return Spent(seconds, wal)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _sample_often(
    options: argparse.Namespace,
    meter: Meter,
    payload: int,
    *,
    batch: int = BATCH,
    processes: int = 1,
) -> Sample:
    """Take as many samples as `--rounds` says, and return the median of each field."""
    rounds = range(options.rounds)
    samples = [_sample(meter, options.jobs, payload, batch, processes) for _round in rounds]
    return Sample(*map(median, zip(*samples, strict=True)))


def _sample(meter: Meter, jobs: int, payload: int, batch: int, processes: int) -> Sample:
    """Publish jobs while their consumer is paused, let workers do them. Return costs of a job."""
    content = os.urandom(payload)
    alone, batches = jobs // ALONE, (jobs - jobs // ALONE) // batch
    together, total = batches * batch, alone + batches * batch
    query(f"TRUNCATE {EMPTIED}")
    empty = _disk()
    _pause("9000-01-01")
    query("CHECKPOINT")
    # Before a worker waits: under load none does, and no publish wakes one.
    apart = meter.measure(lambda: [publish(CHANNEL, content) for _ in range(alone)])
    with _working(processes) as workers:
        many = meter.measure(
            lambda: [publish_many(CHANNEL, [content] * batch) for _ in range(batches)]
        )
        before = cpu_of(workers)
        drained = meter.measure(_drain)
        seconds = cpu_of(workers) - before
    return Sample(
        alone=apart.seconds / alone,
        batch=many.seconds / together,
        run=drained.seconds / total,
        worker=seconds / total,
        wal=many.wal / together + drained.wal / total,
        disk=(_disk() - empty) / total,
        rate=_number(RATE),
    )


def _drain() -> None:
    _pause("2000-01-01")
    while query("SELECT EXISTS (SELECT FROM pulljobs_job)")[0][0]:
        time.sleep(LOOK_SECONDS)


def _pause(until: str) -> None:
    query(f"UPDATE pulljobs_consumer SET paused_until = '{until}' WHERE id = {consumer().pk}")


@contextmanager
def _working(processes: int) -> Iterator[psutil.Process]:
    """Run a worker with child processes, and yield its supervisor once all wait for jobs."""
    command = [*worker_command(FETCH, held=8 * FETCH), "--processes", str(processes)]
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "benchmarks.settings"}
    query("TRUNCATE pulljobs_pull_waiter")
    worker = subprocess.Popen(command, env=environment)
    try:
        deadline = time.monotonic() + START_SECONDS
        while _number("SELECT count(*) FROM pulljobs_pull_waiter") < processes:
            if time.monotonic() > deadline or worker.poll() is not None:
                raise SystemExit("The worker did not start: its messages are above.")
            time.sleep(LOOK_SECONDS)
        yield psutil.Process(worker.pid)
    finally:
        worker.terminate()
        worker.wait()


def _commits() -> float:
    """Return the commits a second of a connection that waits for each commit before the next."""
    with bare_connection() as session:
        began = time.perf_counter()
        for _commit in range(COMMITS):
            session.execute("UPDATE pulljobs_channel SET name = name")
        return COMMITS / (time.perf_counter() - began)


def _disk() -> float:
    return _number(DISK)


def _number(text: str) -> float:
    return float(str(query(text)[0][0]))
