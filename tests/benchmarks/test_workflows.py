"""Benchmarks of workflows: a small run measures, and a small run under faults judges itself."""

from pathlib import Path
from typing import Final

import pytest

from tests.benchmarks.runs import measure

pytestmark = [pytest.mark.slow, pytest.mark.processes]
SEED: Final = "29"
PEERS: Final = "pulljobs,pulljobs-raw"
"""Contenders of the benchmark: the library, and loops that only run its statements."""


def test_steps_signals_and_starts_next_to_sleeping_runs_are_measured(state: Path) -> None:
    sizes = ("--runs", "20", "--signals", "5", "--sleeping", "100", "--members", "200")
    figures = measure(state, "workflows", "--peers", PEERS, "--processes", "1", *sizes)
    row, raw = figures["tables"]["Workflows"]
    for peer in (row, raw):
        assert peer["steps/s"] > 0
        assert peer["worker us/step"] >= 0
        assert peer["server us/step"] >= 0
    assert row["members/s"] > 0
    assert row["callback after ms"] >= 0
    assert row["signal asleep p50 / p99 ms"]


def test_runs_keep_their_promises_under_faults_between_statements(state: Path) -> None:
    """No rule is broken, and the violations that are planted at the end are all reported."""
    sizes = ("--times", "12", "--live", "8", "--workers", "1", "--lease", "1.5")
    report = measure(state, "workflow-faults", "--seed", SEED, *sizes)
    assert report["broken"] == {}
    assert report["verify"]
    assert set(report["finds planted"].values()) == {True}
    assert report["clean"]
