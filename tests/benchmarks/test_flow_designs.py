"""Prototypes of flow control keep the limits that they are measured with."""

from pathlib import Path

import pytest

from tests.benchmarks.runs import measure

pytestmark = [pytest.mark.slow, pytest.mark.processes]


def test_prototypes_keep_bounds_rates_and_shares(state: Path) -> None:
    """Keys keep a bound of two jobs, and weight 3 gets three times as many jobs as weight 1."""
    sizes = ("--jobs", "1000", "--keys", "1", "20", "--wanted", "10", "--rounds", "1")
    tables = measure(state, "flow-designs", *sizes)["tables"]
    [bound] = tables["4 processes, 2 per key"]
    assert bound["jobs"] == 1000
    assert bound["most of a key in flight"] == 2
    for row in tables["Shares of keys with weights 1 and 3"]:
        assert row["ratio"] == pytest.approx(3, rel=0.05)
    for row in tables["A rate that allows a tenth, and claims after that"]:
        assert row["allowed jobs"] == 100
    for row in tables["Limits that hold nothing back"]:
        assert row["jobs/s"] > 0
