"""Comparison of two commits: alternating `limit` runs on one server, and each figure's ratio.

Each commit runs the code of its own tree in processes of its own, because the layout of modules
differs between commits. Only the options of `limit` and the JSON that it prints have to stay.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from django.db import connection

from benchmarks.database import machine, refuse_unsafe
from benchmarks.ratios import Ratio, paired_ratio
from benchmarks.report import Table, print_table
from example_project.state import BASE_DIR, state_directory

LOWEST_RATIO: Final = 0.98
CONTROL: Final = "hot"
"""Raw design that runs next to pulljobs: its ratio shows how far the machine can be trusted."""
RATES: Final = ("messages/s", "jobs/s")
COSTS: Final = ("WAL bytes a job",)
FAILED: Final = 2
IMPORTED: Final = "import benchmarks, pulljobs; print(benchmarks.__path__[0], pulljobs.__path__[0])"

Figures = dict[str, float]


class Comparison(NamedTuple):
    """One figure of `limit`: the medians of both commits and the ratio new/old of their rounds."""

    figure: str
    old: float
    new: float
    ratio: Ratio

    @property
    def is_judged(self) -> bool:
        """True for a rate of pulljobs. Costs, and rates of raw statements, never fail the run."""
        return self.figure.endswith(RATES) and not self.figure.startswith(("raw", CONTROL))

    @property
    def is_slower(self) -> bool:
        """True for a judged figure whose 95 % interval lies wholly below the lowest ratio."""
        return self.is_judged and self.ratio.high < LOWEST_RATIO


def run(options: argparse.Namespace) -> None:
    """Print the compared figures, and exit with 1 if a rate of the new commit is clearly lower."""
    connection.ensure_connection()  # As long as this process is a user, the server stays up.
    refuse_unsafe()
    options.old, options.new = (_full_name(name) for name in (options.old, options.new))
    with TemporaryDirectory(prefix="pulljobs-compare-") as directory:
        old, new = (
            extract(BASE_DIR, commit, Path(directory) / side)
            for side, commit in (("old", options.old), ("new", options.new))
        )
        runs = alternate(old, new, limit_flags(options, (old, new)), options.rounds)
    comparisons = compare(*runs)
    print_table(f"{options.old} (old) and {options.new} (new)", table(comparisons), sys.stdout)
    if options.json:
        options.json.write_text(json.dumps(_document(options, comparisons, runs), indent=1))
    if slower := [comparison.figure for comparison in comparisons if comparison.is_slower]:
        print(f"\nSlower: {'; '.join(slower)}.")
        raise SystemExit(1)


def _full_name(commit: str) -> str:
    """Return the short hash of a commit: a name such as HEAD means another commit tomorrow."""
    return (
        _output(["git", "rev-parse", "--short", f"{commit}^{{commit}}"], BASE_DIR).decode().strip()
    )


def extract(repository: Path, commit: str, tree: Path) -> Path:
    """Write a commit to a new directory, and check that Python there imports its modules."""
    tree.mkdir()
    archive = _output(["git", "archive", "--format=tar", commit], repository)
    subprocess.run(["tar", "-x"], input=archive, cwd=tree, check=True)
    _output([sys.executable, "-m", "compileall", "-q", "benchmarks", "pulljobs"], tree)
    imported = _output([sys.executable, "-c", IMPORTED], tree).decode().split()
    if imported != [str(tree / "benchmarks"), str(tree / "pulljobs")]:
        _fail(f"Python imports {' and '.join(imported)} instead of the modules of {commit}.")
    return tree


def limit_flags(options: argparse.Namespace, trees: Sequence[Path]) -> list[str]:
    """Return the options of one `limit` run, without the publish options that a commit lacks."""
    flags = ["--json", "--rounds=1", f"--jobs={options.jobs}", f"--designs={CONTROL}"]
    known = [_output(_limit("--help"), tree).decode() for tree in trees]
    for flag, value in (("--publish-rounds", 1), ("--publishes", options.publishes)):
        if all(flag in text for text in known):
            flags.append(f"{flag}={value}")
    return [*flags, "--processes", *map(str, options.processes)]


def alternate(
    old: Path, new: Path, flags: Sequence[str], rounds: int
) -> tuple[list[Figures], list[Figures]]:
    """Measure both trees in every round, in the order A B B A, and return the figures of each.

    The first place changes with the round, so that a load which grows or falls favors neither.
    """
    runs: dict[Path, list[Figures]] = {old: [], new: []}
    for round in range(rounds):
        for tree in (old, new) if round % 2 == 0 else (new, old):
            runs[tree].append(read_figures(_output(_limit(*flags), tree)))
            print(f"round {round + 1} of {rounds}: {tree.name} is done", file=sys.stderr)
    return runs[old], runs[new]


def read_figures(output: bytes) -> Figures:
    """Return the rates and costs in the JSON of a `limit` run, in the order of its tables."""
    tables = json.loads(output)["tables"].values()
    return {
        f"{_name(row)}, {column}": row[column]
        for rows in tables
        for row in rows
        for column in (*RATES, *COSTS)
        if column in row
    }


def compare(old: Sequence[Figures], new: Sequence[Figures]) -> list[Comparison]:
    """Return a comparison of each figure that both commits report, from one run for each round."""
    comparisons = []
    for figure in old[0]:
        if figure in new[0]:
            before, after = ([run[figure] for run in runs] for runs in (old, new))
            ratio = paired_ratio(before, after)
            comparisons.append(Comparison(figure, median(before), median(after), ratio))
    return comparisons


def table(comparisons: Sequence[Comparison]) -> Table:
    """Return the rows of the printed table."""
    return [
        {
            "figure": comparison.figure,
            "old": comparison.old,
            "new": comparison.new,
            "ratio": f"{comparison.ratio.mean:.3f}",
            "95 % interval": f"{comparison.ratio.low:.3f} to {comparison.ratio.high:.3f}",
            "verdict": _verdict(comparison),
        }
        for comparison in comparisons
    ]


def _verdict(comparison: Comparison) -> str:
    if not comparison.is_judged:
        return "not judged"
    if comparison.is_slower:
        return "slower"
    return "as fast" if comparison.ratio.low >= LOWEST_RATIO else "unclear"


def _name(row: dict[str, Any]) -> str:
    return str(row["way"]) if "way" in row else f"{row['contender']} x {row['processes']}"


def _limit(*flags: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks", "limit", *flags]


def _output(command: Sequence[str], directory: Path) -> bytes:
    """Run a command in a directory and return its output. Exit with 2 if the command fails."""
    # PYTHONSAFEPATH would keep Python from importing the modules of the directory.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    environment["PULLJOBS_STATE_DIR"] = str(state_directory())
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True)
    if done.returncode:
        _fail(f"{' '.join(command)} failed in {directory}:\n{done.stderr.decode()}")
    return done.stdout


def _fail(message: str) -> None:
    print(message, file=sys.stderr)
    raise SystemExit(FAILED)


def _document(
    options: argparse.Namespace,
    comparisons: Sequence[Comparison],
    runs: tuple[list[Figures], list[Figures]],
) -> dict[str, Any]:
    return {
        "old": options.old,
        "new": options.new,
        "machine": machine(),
        "comparisons": [
            {**comparison._asdict(), "ratio": comparison.ratio._asdict()}
            for comparison in comparisons
        ],
        "runs": {"old": runs[0], "new": runs[1]},
    }
