"""`benchmarks limit` compares a worker with raw SQL, and claims with and without a snapshot."""

import os
from pathlib import Path

import pytest

from benchmarks.limit import default_processes
from tests.benchmarks.runs import measure

pytestmark = [pytest.mark.slow, pytest.mark.processes]


def test_worker_is_compared_with_raw_sql_by_number_of_processes(state: Path) -> None:
    """Each ratio compares rates in the table, at equal numbers of processes or of connections."""
    sizes = ("--jobs", "1000", "--rounds", "1", "--publishes", "50", "--publish-rounds", "1")
    figures = measure(state, "limit", *sizes, "--designs", "hot", "--processes", "1", "2")
    rows = figures["tables"]["1,000 jobs queued, batches of 500"]
    rates = {(row["contender"], row["processes"]): row["jobs/s"] for row in rows}
    for name, processes in (("ratio_one_process", 1), ("ratio_two_processes", 2)):
        ratio = rates["runpullworker", processes] / rates["hot", processes]
        assert figures[name] == pytest.approx(ratio, abs=0.001)
        # A worker claims on one connection and finishes on another; a raw loop has one.
        by_connections = rates["runpullworker", processes] / rates["hot", 2 * processes]
        assert figures[f"{name}_by_connections"] == pytest.approx(by_connections, abs=0.001)
    assert not [name for name in figures if "four" in name]


def test_as_many_processes_as_cores_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, processes in (
        (1, [1, 2]),
        (2, [1, 2]),
        (3, [1, 2, 3]),
        (4, [1, 2, 4]),
        (64, [1, 2, 4]),
    ):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid, cores=cores: set(range(cores)))
        assert default_processes() == processes


def test_trickle_compares_claims_with_those_without_a_snapshot(state: Path) -> None:
    """A run of three seconds times claims with and without a snapshot, and skips no job."""
    figures = measure(state, "limit", "--trickle", "0.05")
    assert figures["skipped"] == 0
    assert 0 < figures["dequeued_share"] <= 1
    assert figures["claim_p99_of_without"] > 0
    [claims] = figures["tables"]["Claims"]
    assert claims["p50 / p99 ms, without"]
