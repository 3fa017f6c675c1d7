"""Time of a pass that fires due schedules among few and many, and the lateness of slots."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from benchmarks.database import CHANNEL, own_database, query
from benchmarks.report import Table, percentiles, print_report, spread
from pulljobs import schedules
from pulljobs.conf import settings
from pulljobs.schedules.firing import fire_batch
from pulljobs.schedules.loop import read_wait
from pulljobs.schedules.models import Schedule
from pulljobs.storage import sessions

WORKER: Final = ("django", "runpullworker", "--verbosity", "0")
DUE: Final = 100
"""Schedules that are due in each pass."""
START_SECONDS: Final = 120
WARM_SECONDS: Final = 2.0
STOP_SECONDS: Final = 60
SECOND: Final = timedelta(seconds=1)


def run(options: argparse.Namespace) -> None:
    """Measure the time of passes and the lateness of slots, and print the figures."""
    with own_database():
        sessions.dedicate(settings().DATABASE)
        costs = [_measure_passes(count, options.rounds) for count in options.schedules]
        lates = [
            _measure_lateness(options.rate, options.seconds, together=together)
            for together in (False, True)
        ]
    figures = {
        "pass_p50_growth": round(costs[-1]["_p50"] / costs[0]["_p50"], 2),
        "late_p99_ms": round(lates[0]["_p99"], 1),
        "late_together_p99_ms": round(lates[1]["_p99"], 1),
    }
    tables = {
        f"A pass that fires {DUE} schedules, and one that fires none": _shown(costs),
        f"Lateness of slots at {options.rate} due a second": _shown(lates),
    }
    print_report(tables, figures, as_json=options.json)


def _shown(rows: Table) -> Table:
    return [{key: value for key, value in row.items() if key[0] != "_"} for row in rows]


def _measure_passes(count: int, rounds: int) -> dict[str, Any]:
    _fill(count)
    firing, idle = [], []
    for _ in range(rounds):
        _make_due()
        firing.append(_time(fire_batch))
        idle.append(_time(read_wait))
    return {
        "schedules": count,
        "p50 / p99 ms": spread(firing),
        "idle p50 / p99 ms": spread(idle),
        "_p50": percentiles(firing)[0],
    }


def _time(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _fill(count: int) -> None:
    """Create schedules with a slot an hour that are not due within this run."""
    query("TRUNCATE pulljobs_schedule, pulljobs_slot")
    schedules.create("first", CHANNEL, {"kind": "benchmark"}, every=timedelta(hours=1))
    names = ", ".join(
        str(field.column)
        for field in Schedule._meta.concrete_fields
        if field.column not in ("id", "name", "due_at")
    )
    query(
        f"INSERT INTO pulljobs_schedule (name, due_at, {names})"
        f" SELECT 'copy-' || number, now() + (1 + number % 1000) * interval '1 h', {names}"
        f" FROM pulljobs_schedule, generate_series(2, {int(count)}) AS number"
    )
    query("VACUUM ANALYZE pulljobs_schedule")


def _make_due() -> None:
    """Make some random schedules due now, each for a slot that has not been fired."""
    query(
        "UPDATE pulljobs_schedule SET due_at = now(), next_slot = clock_timestamp()"
        f" WHERE id IN (SELECT id FROM pulljobs_schedule ORDER BY random() LIMIT {DUE})"
    )


def _measure_lateness(rate: int, seconds: float, *, together: bool) -> dict[str, Any]:
    """Return the lateness of `rate` slots a second, due all at once or spread over the second."""
    query("TRUNCATE pulljobs_schedule, pulljobs_slot")
    schedules.create("first", CHANNEL, {"kind": "benchmark"}, every=SECOND)
    [row] = Schedule.objects.all()
    assert row.starts_at is not None
    for number in range(1, rate):
        starts_at = row.starts_at if together else row.starts_at + number * SECOND / rate
        schedules.create(f"copy-{number}", CHANNEL, {}, every=SECOND, starts_at=starts_at)
    query("VACUUM ANALYZE pulljobs_schedule")
    with _worker():
        _wait_for_first_slot()
        time.sleep(WARM_SECONDS)
        [(since,)] = query("SELECT clock_timestamp()")
        time.sleep(seconds)
    rows = query(
        "SELECT late_seconds FROM pulljobs_slot"
        f" WHERE message_id IS NOT NULL AND slot_at >= '{since}'::timestamptz"
    )
    late = [float(str(value)) for (value,) in rows]
    return {
        "slots": "at once" if together else "spread",
        "fired": len(late),
        "fired a second": len(late) / seconds,
        "p50 / p99 ms": spread(late),
        "longest ms": max(late, default=0.0) * 1000,
        "_p99": percentiles(late)[1],
    }


def _wait_for_first_slot() -> None:
    """Return once the worker has fired a slot. Raise SystemExit if it takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while not query("SELECT 1 FROM pulljobs_slot WHERE message_id IS NOT NULL LIMIT 1"):
        if time.monotonic() > deadline:
            raise SystemExit(f"The worker fired no slot in {START_SECONDS} seconds.")
        time.sleep(0.05)


@contextmanager
def _worker() -> Iterator[None]:
    command = [sys.executable, "-m", *WORKER]
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "benchmarks.schedules.settings"}
    worker = subprocess.Popen(command, env=environment)
    try:
        yield
    finally:
        worker.terminate()
        if worker.wait(STOP_SECONDS):
            raise SystemExit("The worker ended with an error: its messages are above.")
