"""Small runs of the benchmarks of batches: callbacks while workers are killed, and settlements."""

from pathlib import Path

import pytest

from tests.benchmarks.runs import measure

pytestmark = [pytest.mark.slow, pytest.mark.processes]


def test_each_batch_calls_back_once_a_round_while_workers_are_killed(state: Path) -> None:
    """The benchmark finds no wrong callback but the two that it plants itself."""
    arguments = ["--members", "600", "--rounds", "4", "--processes", "2", "--pause", "1.5"]
    report = measure(state, "batch-faults", *arguments)
    assert report["wrong_callbacks"] == []
    assert report["kills"] > 0
    assert report["verified"]
    assert report["finds_planted_callbacks"]
    assert report["clean"]


def test_settlements_of_members_and_of_other_jobs_are_compared_in_pairs(state: Path) -> None:
    figures = measure(state, "batch-cost", "--pairs", "6", "--sizes", "1", "4")
    [rows] = figures["tables"].values()
    assert [(row["jobs"], row["time"], row["pairs"]) for row in rows] == [
        (1, "clock", 6),
        (1, "CPU", 6),
        (4, "clock", 3),
        (4, "CPU", 3),
    ]
