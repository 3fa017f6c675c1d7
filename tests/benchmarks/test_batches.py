"""A small run of the proof that batches call back once."""

import json
import subprocess
import sys

import pytest

from example_project.state import BASE_DIR

pytestmark = [pytest.mark.slow, pytest.mark.processes]


def test_each_batch_calls_back_once_a_round_while_workers_are_killed() -> None:
    """A dead member is redriven after the end. Two planted mistakes are seen."""
    arguments = ["--members", "600", "--rounds", "4", "--processes", "2", "--pause", "1.5"]
    command = [sys.executable, "-m", "benchmarks", "batch-faults", "--json", *arguments]
    done = subprocess.run(command, cwd=BASE_DIR, capture_output=True, text=True)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert report["wrong_callbacks"] == []
    assert report["kills"] > 0
    assert report["verified"]
    assert report["finds_planted_callbacks"]
    assert report["clean"]
