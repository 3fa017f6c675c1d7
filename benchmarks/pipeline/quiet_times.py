"""Times that a user waits for commands of the lake, with the start of Spark, for few jobs."""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.database import own_database
from benchmarks.pipeline import history
from benchmarks.report import Table, print_report
from pulljobs.lake.models import RollupRun

TARGETS: Final = {"export": 3.0, "rollup": 10.0, "verify": 10.0, "second rollup of watch": 2.0}
"""Longest seconds on two quiet cores."""
POLL_SECONDS: Final = 0.1
WATCH_SECONDS: Final = 120.0


def run(options: argparse.Namespace) -> None:
    """Run the commands one after the other, each in a process of its own, and report."""
    with TemporaryDirectory() as folder, own_database(durable=False):
        history.fill(options.jobs)
        os.environ["PULLJOBS_BENCHMARK_SETTINGS"] = f'{{"LAKE": "{folder}/lake"}}'
        times = {verb: _time_command(verb) for verb in ("export", "rollup", "verify")}
        times["second rollup of watch"] = _time_watch(options.jobs)
    table: Table = [
        {"what": what, "seconds": seconds, "target": TARGETS[what]}
        for what, seconds in times.items()
    ]
    missed = [row["what"] for row in table if row["seconds"] >= row["target"]]
    figures: dict[str, Any] = {
        f"{what.replace(' ', '_')}_seconds": seconds for what, seconds in times.items()
    }
    figures["missed"] = ", ".join(missed) or "none"
    print_report({f"Commands, {options.jobs:,} jobs": table}, figures, as_json=options.json)


def _time_command(verb: str) -> float:
    """Return the seconds of a command, from its start to its end."""
    started = time.monotonic()
    subprocess.run(_command(verb), check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - started


def _time_watch(jobs: int) -> float:
    """Return the seconds of a rollup by a `lake watch` whose Spark session has run before."""
    with _watching():
        for days_ago in (4, 6):
            _settle(jobs, f"now() - interval '{days_ago} days'")
            runs = RollupRun.objects.count()
            _wait_until_rolled_up(runs + 1)
    last = RollupRun.objects.latest("pk")
    return float((last.finished_at - last.started_at).total_seconds())


@contextmanager
def _watching() -> Iterator[None]:
    command = _command("watch", "--every", "1", "--rollup-every", "1")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _wait_until_rolled_up(runs: int) -> None:
    deadline = time.monotonic() + WATCH_SECONDS
    while RollupRun.objects.count() < runs:
        if time.monotonic() > deadline:
            raise SystemExit(f"No rollup ended within {WATCH_SECONDS:.0f} s.")
        time.sleep(POLL_SECONDS)


def _settle(rows: int, since: str) -> None:
    history.settle(1, rows, rows, since)


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "django", "pulljobs", "lake", *words]
