"""Benchmarks of schedules: small runs measure what the page shows, and prove what it promises."""

from pathlib import Path

import pytest

from tests.benchmarks.runs import measure

pytestmark = [pytest.mark.slow, pytest.mark.processes]


def test_each_slot_fires_once_or_is_skipped_while_workers_and_the_server_are_killed(
    state: Path,
) -> None:
    """Although half of the workers' clocks are wrong, only two planted mistakes are reported."""
    sizes = ("--workers", "3", "--seconds", "12", "--schedules", "60", "--often", "20")
    report = measure(state, "schedule-faults", *sizes, "--pause", "1.5")
    assert report["broken"] == {}
    assert report["messages_without_slot_or_slots_without_message"] == 0
    assert report["finds_planted_missing_slot"]
    assert report["finds_planted_doubled_slot"]
    assert report["clean"]
    assert min(report["kills"], report["restarts"]) > 0
    assert report["reasons"]["due"] > 100


def test_cost_of_passes_and_lateness_of_slots_are_measured(state: Path) -> None:
    sizes = ("--schedules", "100", "1000", "--rounds", "5", "--rate", "20", "--seconds", "3")
    figures = measure(state, "schedules", *sizes)
    passes, late = figures["tables"].values()
    assert [row["schedules"] for row in passes] == [100, 1000]
    assert [row["slots"] for row in late] == ["spread", "at once"]
    assert all(row["fired a second"] > 0 for row in late)
    assert figures["late_p99_ms"] > 0
