"""Real processes under real faults keep the promises, and the checker sees broken ones."""

import os

import pytest

from tests.faults.conftest import Faults

pytestmark = [pytest.mark.processes, pytest.mark.slow]
JOBS = os.environ.get("PULLJOBS_TEST_JOBS") or "1000"
ONLY_CLAIMERS = ("--faults", "none", "--workers", "0", "--claimers", "3", "--lease", "0.5")
MIXED = "kill,stop,restart,terminate,cut,row"


def test_mix_of_faults_breaks_no_promise(faults: Faults) -> None:
    """A process that lost a lease settles late in one of three runs: faults also hit idle ones."""
    late = 0
    for _run in range(3):
        report = faults(
            *("--faults", MIXED, "--times", "6", "--every", "0.8", "--hold", "0.5"),
            *("--workers", "2", "--lease", "1"),
        )
        assert (report["broken"], report["complaints"]) == ({}, [])
        assert set(report["faults"]) == set(MIXED.split(","))
        assert report["lost"] == 0 < report["acknowledged"]
        late += report["late settles refused"]
        if late:
            return
    pytest.fail("no late settle was refused in three runs")


@pytest.mark.parametrize(
    ("broken", "rules"),
    [
        ("claim", {"leases_do_not_overlap"}),
        ("fence", {"leases_do_not_overlap"}),
        ("flush,publish", {"answers_are_true", "nothing_is_lost"}),
    ],
)
def test_checker_reports_what_is_broken_on_purpose(
    faults: Faults, broken: str, rules: set[str]
) -> None:
    """One of six runs shows it: on a busy machine all claimers of a run may be equally slow."""
    runs = (faults("--break", broken, "--jobs", JOBS, *ONLY_CLAIMERS) for _ in range(6))
    assert any(rules <= set(report["broken"]) for report in runs)
