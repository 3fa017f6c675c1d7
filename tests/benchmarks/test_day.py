"""A day in fast motion: history levels off, because retention drops it."""

import json
import subprocess
import sys

import pytest

from example_project.state import BASE_DIR

HOURS = 8
PARTITIONS = 2 * (1 + 2 + 1 + 7)
"""Partitions of both tables: the default, two whole days kept, today and seven made ahead."""


@pytest.mark.slow
@pytest.mark.processes
def test_history_of_a_small_day_levels_off() -> None:
    """From the third hour on, partitions are dropped, and the archive hardly grows.

    Tables that wait for autovacuum, which runs once a minute, still grow at the end.
    """
    command = [sys.executable, "-m", "benchmarks", "day", "--json"]
    command += ["--hours", str(HOURS), "--rate", "0.5"]
    done = subprocess.run(command, cwd=BASE_DIR, capture_output=True, text=True)
    assert done.stdout, done.stderr
    figures = json.loads(done.stdout)
    hours = next(iter(figures["tables"].values()))
    assert len(hours) == HOURS
    assert [hour["partitions"] for hour in hours[2:]] == [PARTITIONS] * (HOURS - 2)
    assert figures["archive_and_messages_growth"] < 1.25
    assert all(hour["jobs/s"] > 0 and hour["job"] > 0 for hour in hours)
    missed = set(figures["missed"].split("; "))
    assert not missed & {"partitions", "archive and messages"}
    assert done.returncode == (missed != {"none"})


def test_day_is_long_enough_for_retention() -> None:
    """Fewer than 8 hours are refused, because retention would drop nothing to compare."""
    command = [sys.executable, "-m", "benchmarks", "day", "--hours", "7"]
    done = subprocess.run(command, cwd=BASE_DIR, capture_output=True, text=True)
    assert done.returncode == 2
    assert "fewer than 8 hours" in done.stderr
