"""Real processes, real faults: the promises hold, and where they are broken on purpose it shows."""

import os

import pytest

from tests.faults.conftest import Faults

pytestmark = [pytest.mark.processes, pytest.mark.slow]
JOBS = os.environ.get("PULLJOBS_TEST_JOBS") or "1000"
ONLY_CLAIMERS = ("--faults", "none", "--workers", "0", "--claimers", "3", "--lease", "0.5")
MIXED = "kill,stop,restart,terminate,cut,row"


def test_mix_of_faults_breaks_no_promise(faults: Faults) -> None:
    """Whoever lost a lease settles late in one of three runs: faults hit idle processes, too."""
    late = 0
    for _run in range(3):
        told = faults(
            *("--faults", MIXED, "--times", "6", "--every", "0.8", "--hold", "0.5"),
            *("--workers", "2", "--lease", "1"),
        )
        assert (told["broken"], told["complaints"]) == ({}, [])
        assert set(told["faults"]) == set(MIXED.split(","))
        assert told["lost"] == 0 < told["acknowledged"]
        late += told["late settles refused"]
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
def test_checker_sees_what_is_broken_on_purpose(
    faults: Faults, broken: str, rules: set[str]
) -> None:
    """In one of three runs: on a busy machine all claimers of one may be slow alike."""
    runs = (faults("--break", broken, "--jobs", JOBS, *ONLY_CLAIMERS) for _ in range(3))
    assert any(rules <= set(told["broken"]) for told in runs)
