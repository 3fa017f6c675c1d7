"""Run of the benchmark `day`: hours of jobs, each on another day of the clock, and their sizes."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Final

from benchmarks.contenders import worker_command
from benchmarks.database import own_database, query
from benchmarks.day import clock, sizes
from benchmarks.day.publishing import Publishers
from benchmarks.day.sizes import Sizes
from benchmarks.report import Table, print_report
from pulljobs import ids, operating
from pulljobs.conf import settings
from pulljobs.storage import nodes

BACKLOG: Final = 50_000
BATCH: Final = 500
PUBLISHERS: Final = 2
SAMPLE_SECONDS: Final = 0.5
STOP_SECONDS: Final = 60
GROWTH: Final = {"partition": 1.0, "process": 1.1, "": 1.25}
"""Largest growth from the second quarter to the last, by the beginning of a size's name."""
APART: Final = {
    "pulljobs_job": "Indexes of jobs, in MiB",
    "process": "Memory of the worker's processes, in MiB",
}
"""Titles of further tables, by the beginning of the names of their sizes."""


def run(options: argparse.Namespace) -> None:
    """Run all hours and report their highest sizes. Exit with 1 if a size grew beyond its limit."""
    jobs = max(1, round(3600 * options.rate))
    # The sizes count here, not the time until they are on a disk.
    with own_database(durable=False):
        clock.create_clock()
        with Publishers(PUBLISHERS) as publishers, _worker(options.processes) as worker:
            hours = [_hour(jobs, publishers, worker) for _number in range(options.hours)]
        _report(hours, jobs, as_json=options.json)


@contextmanager
def _worker(processes: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [*worker_command(BATCH, held=4 * BATCH), "--processes", str(processes)]
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "benchmarks.day.settings"}
    worker = subprocess.Popen(command, env=environment)
    try:
        yield worker
    finally:
        worker.terminate()
        if worker.wait(STOP_SECONDS):
            raise SystemExit("The worker ended with an error: its messages are above.")


def _hour(jobs: int, publishers: Publishers, worker: subprocess.Popen[bytes]) -> Sizes:
    """Move the clock by a day and do the jobs of an hour. Return the rate and highest sizes."""
    clock.pass_a_day()
    first_id, began = ids.first_of(nodes.clock(settings().DATABASE)), time.monotonic()
    until = publishers.allowed + jobs
    samples: list[Sizes] = []
    while not _is_done(publishers, until):
        settled = publishers.published - sizes.count_live()
        room = min(until, settled + BACKLOG) - publishers.allowed
        publishers.allow(max(0, room))
        if not samples:
            # The worker does this every ten minutes while jobs come and go.
            operating.maintain()
        samples.append(_sample(worker))
        time.sleep(SAMPLE_SECONDS)
    rate = jobs / (time.monotonic() - began)
    [(done,)] = query(f"SELECT count(*) FROM pulljobs_archived_job WHERE id >= {first_id}")
    if done != jobs:
        raise SystemExit(f"{done} of {jobs} jobs were settled.")
    print(f"{jobs:,} jobs, {rate:,.0f} a second", file=sys.stderr)
    return {"jobs/s": rate, **sizes.highest(samples)}


def _is_done(publishers: Publishers, until: int) -> bool:
    if publishers.allowed < until or not publishers.are_done():
        return False
    return not sizes.count_live()


def _sample(worker: subprocess.Popen[bytes]) -> Sizes:
    if worker.poll() is not None:
        raise SystemExit("The worker ended.")
    sample = {**sizes.read_tables(), "dead rows": sizes.count_dead()}
    return {**sample, **sizes.read_indexes(), **sizes.read_memory(worker.pid)}


def _report(hours: list[Sizes], jobs: int, *, as_json: bool) -> None:
    growth = _growth(hours)
    missed = [name for name, ratio in growth.items() if ratio > _allowed(name)]
    figures = {f"{name}_growth".replace(" ", "_"): ratio for name, ratio in growth.items()}
    rates = {"jobs_per_second": median(hour["jobs/s"] for hour in hours)}
    first = [name for name in hours[-1] if not name.startswith(tuple(APART))]
    tables = {f"{jobs:,} jobs an hour: the highest of each, sizes in MiB": _table(hours, first)}
    for start, title in APART.items():
        tables[title] = _table(hours, [name for name in hours[-1] if name.startswith(start)])
    print_report(tables, rates | figures | {"missed": "; ".join(missed) or "none"}, as_json=as_json)
    if missed:
        sys.exit(1)


def _table(hours: list[Sizes], names: list[str]) -> Table:
    return [
        {"hour": number, **{name: hour[name] for name in names}}
        for number, hour in enumerate(hours, 1)
    ]


def _allowed(name: str) -> float:
    return next(ratio for start, ratio in GROWTH.items() if name.startswith(start))


def _growth(hours: list[Sizes]) -> Sizes:
    """Return the growth of each size by name, from the second quarter of the run to the last.

    The growth is the ratio of the highest values in both quarters.
    """
    quarter = len(hours) // 4
    second = sizes.highest(hours[quarter : 2 * quarter])
    last = sizes.highest(hours[-quarter:])
    return {
        name: round(last[name] / second[name], 3)
        for name in second
        if name != "jobs/s" and second[name]
    }
