"""`python -m benchmarks start`: time to the first claim, first seconds and memory of a worker."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import psutil

from benchmarks.contenders import worker_command
from benchmarks.database import CHANNEL, own_database, query
from benchmarks.report import percentiles, print_report
from pulljobs.publishing import publish

BARE: Final = (
    "import sys, django; django.setup(); from django.db import connection;"
    " connection.ensure_connection(); print(flush=True); sys.stdin.read()"
)
"""Process that has set Django up and opened a connection with psycopg."""
LOOK_SECONDS: Final = 0.01
START_SECONDS: Final = 60
REST_SECONDS: Final = 2.0
BATCH: Final = 500
MIB: Final = 2**20


class Start(NamedTuple):
    """Figures of one start. Memory is in bytes, with an equal part of each shared page."""

    django: float
    """Seconds until a process without pulljobs has a connection."""
    bare: float
    """Memory of a process without pulljobs."""
    claim: float
    """Seconds until the worker has claimed a job that waited."""
    first: float
    """Milliseconds from publish to start, 99th percentile, in the first seconds after that."""
    later: float
    child: float
    supervisor: float


def run(options: argparse.Namespace) -> None:
    """Start processes without pulljobs and workers in turn, and print medians."""
    with own_database(), _bytecode():
        publish(CHANNEL, b"")  # The plans and the connection of this process are no part of it.
        _start(options.rate, seconds=0)  # Compiles.
        starts = [_start(options.rate, options.seconds) for _round in range(options.rounds)]
    print_report(
        {"Starts": [_row(each) for each in starts]}, _figures(starts), as_json=options.json
    )


@contextmanager
def _bytecode() -> Iterator[None]:
    """Give the processes started in the block a bytecode cache, as an installed package has it."""
    before = dict(os.environ)
    with TemporaryDirectory() as directory:
        os.environ |= {"PYTHONPYCACHEPREFIX": directory, "PYTHONDONTWRITEBYTECODE": ""}
        try:
            yield
        finally:
            os.environ.clear()
            os.environ |= before


def _start(rate: float, seconds: float) -> Start:
    django, bare = _bare()
    query("TRUNCATE pulljobs_job, pulljobs_archived_job, pulljobs_lease")
    publish(CHANNEL, b"")
    began = time.time()
    with _working() as worker:
        claimed = _await_claim()
        first = _waits(rate, seconds)
        later = _waits(rate, seconds)
        time.sleep(REST_SECONDS)
        [child] = [each for each in worker.children() if "spawn_main" in " ".join(each.cmdline())]
        memory = _memory(child), _memory(worker)
    return Start(
        django, bare, claimed - began, percentiles(first)[1], percentiles(later)[1], *memory
    )


def _bare() -> tuple[float, float]:
    """Start Django without pulljobs. Return the seconds to its connection, and bytes of memory."""
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "benchmarks.bare_settings"}
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", BARE], env=environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    seconds = time.perf_counter() - began
    memory = _memory(psutil.Process(process.pid))
    process.communicate(b"")
    return seconds, memory


@contextmanager
def _working() -> Iterator[psutil.Process]:
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "benchmarks.settings"}
    worker = subprocess.Popen(worker_command(BATCH, held=8 * BATCH), env=environment)
    try:
        yield psutil.Process(worker.pid)
    finally:
        worker.terminate()
        worker.wait()


def _await_claim() -> float:
    """Wait until the queued job is done. Return the Unix time of its claim."""
    deadline = time.monotonic() + START_SECONDS
    while not (
        rows := query("SELECT extract(epoch FROM claimed_at)::float8 FROM pulljobs_archived_job")
    ):
        if time.monotonic() > deadline:
            raise SystemExit("The worker did not do its first job.")
        time.sleep(LOOK_SECONDS)
    return float(str(rows[0][0]))


def _waits(rate: float, seconds: float) -> list[float]:
    """Publish at an even pace, and return the seconds from each publish to the start of its job."""
    published: dict[int, float] = {}
    began = time.monotonic()
    for number in range(round(rate * seconds)):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        now = time.time()
        published[publish(CHANNEL, b"").job_ids[0]] = now
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        rows = query(
            "SELECT job_id, extract(epoch FROM started_at)::float8 FROM pulljobs_archived_job"
        )
        started = {int(str(id)): float(str(at)) for id, at in rows}
        if published.keys() <= started.keys():
            return [started[id] - at for id, at in published.items()]
        time.sleep(LOOK_SECONDS)
    raise SystemExit("The worker did not do all jobs.")


def _memory(process: psutil.Process) -> float:
    return float(process.memory_full_info().pss)


def _row(start: Start) -> dict[str, Any]:
    return {
        "Django s": start.django,
        "claim s": start.claim,
        "p99 ms, first": start.first,
        "p99 ms, later": start.later,
        "Django MiB": start.bare / MIB,
        "child MiB": start.child / MIB,
        "supervisor MiB": start.supervisor / MIB,
    }


def _figures(starts: Sequence[Start]) -> dict[str, float]:
    def middle(value: Callable[[Start], float]) -> float:
        return round(median(map(value, starts)), 3)

    return {
        "seconds_beyond_django": middle(lambda each: each.claim - each.django),
        "first_p99_ms": middle(lambda each: each.first),
        "later_p99_ms": middle(lambda each: each.later),
        "memory_ratio": middle(lambda each: each.child / each.bare),
        "memory_ratio_with_supervisor": middle(
            lambda each: (each.child + each.supervisor) / each.bare
        ),
    }
