"""Benchmarks of workflows: a small run measures, and a small run under faults judges itself."""

from typing import Final

import pytest

from tests.benchmarks.test_schedules import run_json

pytestmark = [pytest.mark.slow, pytest.mark.processes]
SEED: Final = "29"


def test_steps_signals_and_starts_next_to_sleeping_runs_are_measured() -> None:
    figures = run_json(
        *("workflows", "--peers", "pulljobs", "--runs", "20", "--processes", "1"),
        *("--signals", "5", "--sleeping", "100", "--members", "200"),
    )
    [row] = figures["tables"]["Workflows"]
    assert row["steps/s"] > 0
    assert row["members/s"] > 0
    assert row["callback after ms"] >= 0
    assert row["signal asleep p50 / p99 ms"]


def test_runs_keep_their_promises_under_faults_between_statements() -> None:
    """Violations that are planted at the end are named."""
    report = run_json(
        *("workflow-faults", "--times", "12", "--seed", SEED),
        *("--live", "8", "--workers", "1", "--lease", "1.5"),
    )
    assert report["broken"] == {}
    assert report["verify"]
    assert set(report["finds planted"].values()) == {True}
    assert report["clean"]
