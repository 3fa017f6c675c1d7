"""`python -m benchmarks compare` finds what a commit slowed down, and only that."""

import json
import shutil
import subprocess
from math import exp, log
from pathlib import Path

import pytest

from benchmarks.__main__ import _options
from benchmarks.compare import (
    Comparison,
    alternate,
    compare,
    extract,
    limit_flags,
    read_figures,
)
from benchmarks.ratios import Ratio, paired_ratio
from example_project.state import BASE_DIR
from tests.benchmarks.runs import run

LIMIT = """
import json, sys
from pathlib import Path
import pulljobs
if "--help" in sys.argv:
    print("--publishes" if pulljobs.RATE > 100 else "")
else:
    runs = Path("../order").open("a")
    print(pulljobs.RATE, *sys.argv[2:], file=runs)
    drains = [{"contender": "runpullworker", "processes": 1, "jobs/s": pulljobs.RATE}]
    ways = [{"way": "publish_many", "messages/s": 10.0}]
    print(json.dumps({"tables": {"Publishing": ways, "jobs": drains}}))
"""


def test_interval_of_paired_ratios_agrees_with_known_numbers() -> None:
    """The mean of logarithms 0.0, 0.1 and 0.2 is 0.1 ± t 0.1 / √3, with the t quantile 4.303."""
    ratio = paired_ratio([10.0, 20.0, 30.0], [10.0, 20.0 * exp(0.1), 30.0 * exp(0.2)])
    margin = 4.303 * 0.1 / 3**0.5
    assert log(ratio.mean) == pytest.approx(0.1)
    assert log(ratio.low) == pytest.approx(0.1 - margin)
    assert log(ratio.high) == pytest.approx(0.1 + margin)


def test_interval_is_the_inverse_when_the_commits_are_swapped() -> None:
    old, new = [10.0, 12.0, 9.0, 11.0], [11.0, 11.0, 10.0, 13.0]
    ratio, inverse = paired_ratio(old, new), paired_ratio(new, old)
    assert ratio.mean == pytest.approx(1 / inverse.mean)
    assert ratio.low == pytest.approx(1 / inverse.high)


def test_load_that_both_runs_of_a_pair_share_cancels() -> None:
    ratio = paired_ratio([100.0, 50.0, 10.0], [90.0, 45.0, 9.0])
    assert ratio == pytest.approx((0.9, 0.9, 0.9))


@pytest.mark.parametrize(
    ("figure", "high", "is_slower"),
    [
        ("runpullworker x 4, jobs/s", 0.979, True),
        ("runpullworker x 4, jobs/s", 0.981, False),
        ("publish, one by one, messages/s", 0.9, True),
        ("raw, one by one, messages/s", 0.9, False),
        ("hot x 1, jobs/s", 0.9, False),
        ("runpullworker x 4, WAL bytes a job", 0.9, False),
    ],
)
def test_only_a_rate_of_pulljobs_whose_whole_interval_is_low_is_slower(
    figure: str, high: float, is_slower: bool
) -> None:
    ratio = Ratio(high - 0.1, high - 0.2, high)
    assert Comparison(figure, 1.0, 1.0, ratio).is_slower == is_slower


def test_figures_that_only_one_commit_gives_are_not_compared() -> None:
    old = [{"kept": 1.0, "gone": 1.0}, {"kept": 2.0, "gone": 2.0}]
    new = [{"kept": 1.0, "added": 1.0}, {"kept": 2.0, "added": 2.0}]
    assert [comparison.figure for comparison in compare(old, new)] == ["kept"]


def test_each_commit_runs_its_own_code_in_turns(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    (repository / "pulljobs").mkdir(parents=True)
    (repository / "benchmarks").mkdir()
    (repository / "benchmarks" / "__init__.py").touch()
    (repository / "benchmarks" / "__main__.py").write_text(LIMIT)
    commits = []
    git(repository, "init", "-q")
    for rate in (100.0, 150.0):
        (repository / "pulljobs" / "__init__.py").write_text(f"RATE = {rate}")
        commits.append(commit_all(repository))
    old = extract(repository, commits[0], tmp_path / "old")
    new = extract(repository, commits[1], tmp_path / "new")
    options = _options().parse_args(["compare", *commits, "--jobs", "7", "--processes", "2"])
    runs = alternate(old, new, limit_flags(options, (old, new)), rounds=3)
    ran = [line.split() for line in (tmp_path / "order").read_text().splitlines()]
    assert [line[0] for line in ran] == ["100.0", "150.0", "150.0", "100.0", "100.0", "150.0"]
    assert ran[0][1:] == ["--json", "--rounds=1", "--jobs=7", "--designs=hot", "--processes", "2"]
    many, worker = compare(*runs)
    assert many.figure == "publish_many, messages/s"
    assert many.ratio == pytest.approx((1.0, 1.0, 1.0))
    assert worker.ratio == pytest.approx((1.5, 1.5, 1.5))


def test_figures_are_the_rates_and_costs_of_all_tables() -> None:
    row = {"contender": "hot", "processes": 2, "jobs/s": 5.0, "WAL bytes a job": 7.0, "other": 1}
    document = {"tables": {"jobs": [row]}, "ratio_one_process": 0.9}
    assert read_figures(json.dumps(document).encode()) == {
        "hot x 2, jobs/s": 5.0,
        "hot x 2, WAL bytes a job": 7.0,
    }


@pytest.mark.slow
@pytest.mark.processes
def test_a_commit_is_compared_with_itself(
    own_repository: Path, tmp_path: Path, state: Path
) -> None:
    """A comparison names all figures and exits with its result. Rates of so few jobs are random."""
    report = tmp_path / "report.json"
    sizes = ("--rounds=2", "--jobs=1000", "--publishes=100", "--processes", "1")
    done = run(*(state, "compare", "HEAD", "HEAD", f"--json={report}", *sizes), cwd=own_repository)
    assert report.exists(), done.stderr
    comparisons = {row["figure"]: row for row in json.loads(report.read_text())["comparisons"]}
    assert {
        "publish, one by one, messages/s",
        "publish_many, messages/s",
        "our claim and finish x 1, jobs/s",
        "runpullworker x 1, jobs/s",
        "hot x 1, jobs/s",
    } <= set(comparisons)
    assert all(
        row["ratio"]["low"] <= row["ratio"]["mean"] <= row["ratio"]["high"]
        for row in comparisons.values()
    )
    assert done.returncode == ("slower" in done.stdout)
    assert "runpullworker x 1, jobs/s" in done.stdout


@pytest.fixture
def own_repository(tmp_path: Path) -> Path:
    """Create a repository whose single commit has the working files, committed or not."""
    repository = tmp_path / "repository"
    for package in ("pulljobs", "pyspark_pulljobs", "benchmarks", "example_project"):
        shutil.copytree(
            BASE_DIR / package,
            repository / package,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    git(repository, "init", "-q")
    commit_all(repository)
    return repository


def commit_all(repository: Path) -> str:
    git(repository, "add", "--all", "--force")
    identity = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    git(repository, *identity, "commit", "-q", "-m", "state")
    return git(repository, "rev-parse", "HEAD").strip()


def git(repository: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=repository, check=True, capture_output=True, text=True
    ).stdout
