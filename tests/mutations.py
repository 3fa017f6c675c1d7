"""Break the code as the lists of mutations say, and run the test that has to fail.

    python -m tests.mutations [--only TEXT ...]

`mutations*.toml` of a folder of tests lists `[[mutation]]`s: the case, the file, `old` text that
stands in it once, `new` text in its place, the test that must fail then, and the failure that was
`seen`. Each mutation is tried in a copy of the working tree. A mutation that only a person can make
has `what` in place of the texts.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from example_project.state import BASE_DIR, state_directory

LEFT_OUT: Final = shutil.ignore_patterns(
    ".*_cache", ".git", ".pulljobs", ".tox", "__pycache__", "build", "dist", "*.egg-info"
)
DATABASE: Final = "test_mutations"
PATIENCE: Final = 300


@dataclass(frozen=True, kw_only=True)
class Mutation:
    case: str
    test: str
    seen: str
    file: str = ""
    old: str = ""
    new: str = ""
    what: str = ""
    """Description of the change, where the texts do not show it or are missing."""

    @property
    def text(self) -> str:
        return f"{self.case} {self.file} {self.test} {self.what}"

    def apply(self, tree: Path) -> None:
        path = tree / self.file
        source = path.read_text("utf-8")
        if (count := source.count(self.old)) != 1:
            raise ValueError(f"{self.file} contains {count} times, not once: {self.old!r}")
        path.write_text(source.replace(self.old, self.new), "utf-8")


def lists() -> list[Path]:
    return sorted((BASE_DIR / "tests").rglob("mutations*.toml"))


def read_list(path: Path) -> list[Mutation]:
    return [Mutation(**row) for row in tomllib.loads(path.read_text("utf-8"))["mutation"]]


def replay(mutations: Iterable[Mutation]) -> Iterator[tuple[Mutation, str]]:
    """Apply each mutation in turn. Yield it with the failure of its test, empty if it survived."""
    makes_tables = True
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory) / "tree"
        shutil.copytree(BASE_DIR, tree, ignore=LEFT_OUT)
        for mutation in mutations:
            original = (tree / mutation.file).read_text("utf-8")
            mutation.apply(tree)
            is_migration = "/migrations/" in mutation.file
            kept = "--create-db" if makes_tables or is_migration else "--reuse-db"
            yield mutation, _failure(tree, mutation.test, kept)
            (tree / mutation.file).write_text(original, "utf-8")
            makes_tables = is_migration  # the next test would run on the broken tables


def _failure(tree: Path, test: str, kept: str) -> str:
    command = [sys.executable, "-m", "pytest", test, "-q", "-x", kept, "-p", "no:cacheprovider"]
    state = {"PULLJOBS_STATE_DIR": str(state_directory()), "TEST_DATABASE": DATABASE}
    try:
        ran = subprocess.run(
            command,
            cwd=tree,
            env={**os.environ, **state},
            timeout=PATIENCE,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return f"no end in {PATIENCE} s"
    if ran.returncode == 0:
        return ""
    errors = [line[1:].strip() for line in ran.stdout.splitlines() if line.startswith("E  ")]
    return errors[0] if errors else ran.stdout.strip().splitlines()[-1]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], help="texts of case, file or test")
    options = parser.parse_args(arguments)
    chosen = [
        mutation
        for path in lists()
        for mutation in read_list(path)
        if mutation.old
        if not options.only or any(text in mutation.text for text in options.only)
    ]
    survived = 0
    for mutation, failure in replay(chosen):
        survived += not failure
        print(f"{'caught  ' if failure else 'SURVIVED'} {mutation.text.strip()}: {failure}")
    print(f"{len(chosen) - survived} caught, {survived} survived")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
