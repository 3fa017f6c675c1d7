"""Real processes under real faults keep the promises, and the checker sees broken ones."""

import os

import pytest

from tests.faults.conftest import Faults
from tests.sessions import SLACK

pytestmark = [pytest.mark.processes, pytest.mark.slow]
JOBS = os.environ.get("PULLJOBS_TEST_JOBS") or "1000"
ONLY_CLAIMERS = ("--faults", "none", "--workers", "0", "--claimers", "3", "--lease", "0.5")
LEASE = 3.0 + SLACK / 5
"""Lease duration of a round, and the longest time that a job may wait in it, both in seconds."""
MIXED = "kill,stop,restart,terminate,cut,row"
ROUNDS = os.environ.get("PULLJOBS_TEST_ROUNDS") == "1"
PLANTED = [
    (
        "hold",
        "wait,charge,ready",
        {"unrelated_jobs_do_not_wait", "only_what_started_is_charged", "readiness_is_true"},
    ),
    ("raise", "replace", {"living_processes_stay"}),
    ("freeze", "outlive", {"runs_end_with_their_leases"}),
]


def test_mix_of_faults_breaks_no_promise(faults: Faults) -> None:
    """No job is lost, and in one of three runs a settlement after the loss of its lease is refused.

    A fault may hit an idle process, so a single run need not have such a settlement.
    """
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
    """At least one of six runs shows the planted defect, which a busy machine can hide."""
    runs = (faults("--break", broken, "--jobs", JOBS, *ONLY_CLAIMERS) for _ in range(6))
    assert any(rules <= set(report["broken"]) for report in runs)


def test_a_rate_holds_while_processes_are_killed_frozen_and_cut_off(faults: Faults) -> None:
    report = faults(
        *("--faults", "kill,stop,terminate,cut", "--times", "4", "--hold", "0.5"),
        *("--workers", "2", "--lease", "1", "--jobs", JOBS, "--claim-rate", "400/s"),
        *("--costs", "3", "--group", "--in-flight", "300"),
    )
    assert (report["broken"], report["complaints"]) == ({}, [])
    assert report["lost"] == 0 < report["acknowledged"]


@pytest.mark.parametrize(
    ("broken", "limits", "rule"),
    [
        ("spend", ("--claim-rate", "100/s"), "claims_keep_the_rate"),
        ("turn", ("--claim-rate", "200/s", "--fair", "--keys", "8"), "keys_share"),
    ],
)
def test_checker_reports_claims_that_keep_tokens_or_turns(
    faults: Faults, broken: str, limits: tuple[str, ...], rule: str
) -> None:
    report = faults("--break", broken, *limits, "--jobs", JOBS, *ONLY_CLAIMERS)
    assert rule in report["broken"]


def test_throttles_hold_while_processes_are_killed_frozen_and_cut_off(faults: Faults) -> None:
    report = faults(
        *("--faults", "kill,stop,terminate,cut", "--times", "4", "--hold", "0.5"),
        *("--workers", "2", "--claimers", "0", "--lease", "1"),
        *("--jobs", JOBS, "--throttle", "0.3"),
    )
    assert (report["broken"], report["complaints"]) == ({}, [])
    assert report["throttles"] > 0


def test_checker_reports_a_throttle_that_only_its_own_process_knows(faults: Faults) -> None:
    flags = ("--break", "throttle", "--throttle", "0.5", "--jobs", JOBS, "--faults", "none")
    assert "throttles_hold" in faults(*flags, "--workers", "2", "--claimers", "0")["broken"]


def test_a_round_of_errors_delays_and_charges_no_unrelated_job(faults: Faults) -> None:
    """In a round whose handlers raise errors, other jobs wait for less than a lease.

    Rounds of other faults take minutes: `python -m benchmarks faults --rounds 10`.
    """
    [report] = faults("--rounds", "1", "--faults", "raise", "--lease", str(LEASE))
    assert (report["broken"], report["complaints"]) == ({}, [])
    assert report["longest wait"] < LEASE < report["jobs"]


@pytest.mark.parametrize(("kind", "broken", "rules"), PLANTED if ROUNDS else PLANTED[:1])
def test_rounds_report_what_is_broken_on_purpose(
    faults: Faults, kind: str, broken: str, rules: set[str]
) -> None:
    [report] = faults("--rounds", "1", "--faults", kind, "--break", broken, "--lease", str(LEASE))
    assert not report["clean"]
    assert rules <= set(report["broken"]), report
