"""Real processes, real faults: the promises hold, and where they are broken on purpose it shows."""

import os

import pytest

from tests.faults.conftest import Faults, Told

pytestmark = [pytest.mark.processes, pytest.mark.slow]
JOBS = int(os.environ.get("PULLJOBS_TEST_JOBS") or 1500)


def shown(told: Told) -> Told:
    return {name: told[name] for name in ("broken", "complaints")}


def test_mix_of_faults_breaks_no_promise(faults: Faults) -> None:
    told = faults(
        *("--faults", "kill,stop,restart,terminate,cut,row", "--times", "6", "--every", "0.7"),
        *("--lease", "1", "--hold", "0.5", "--workers", "2"),
    )
    assert shown(told) == {"broken": {}, "complaints": []}
    assert told["lost"] == 0 < told["acknowledged"]
    assert len(told["faults"]) == 6


def test_careless_claimers_harm_nobody(faults: Faults) -> None:
    """They forget, settle late, renew and are killed; each gets its share."""
    told = faults(
        *("--faults", "kill", "--times", "1", "--jobs", str(JOBS)),
        *("--workers", "0", "--claimers", "4", "--lease", "1"),
    )
    assert shown(told) == {"broken": {}, "complaints": []}
    assert told["late settles refused"] > 0
    assert told["claims"] > told["acknowledged"] == JOBS


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        ("claim", "leases_do_not_overlap"),
        ("fence", "leases_do_not_overlap"),
        ("flush", "answers_are_true"),
        ("publish", "nothing_is_lost"),
    ],
)
def test_checker_sees_what_is_broken_on_purpose(faults: Faults, broken: str, rule: str) -> None:
    told = faults(
        *("--break", broken, "--faults", "none", "--jobs", "1500"),
        *("--workers", "0", "--claimers", "3", "--lease", "0.5"),
    )
    assert rule in told["broken"], told
