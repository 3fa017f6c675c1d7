"""Break the code as the lists of mutations say, and run the test that has to fail.

    python -m tests.mutations [--only TEXT ...] [--part K/N]

`mutations*.toml` of a folder of tests lists `[[mutation]]`s: the case, the file, `old` text that
stands in it once, `new` text in its place, the test that must fail then, and the failure that was
`seen`. Each mutation is tried in a copy of the working tree, by a process that has imported the
libraries already. A mutation that only a person can make has `what` in place of the texts.
"""

import argparse
import importlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from example_project.state import BASE_DIR, state_directory

LEFT_OUT: Final = shutil.ignore_patterns(
    ".*_cache", ".git", ".pulljobs", ".tox", "__pycache__", "build", "dist", "*.egg-info"
)
DATABASE: Final = "test_mutations"
PATIENCE: Final = 300
CAUGHT: Final = "caught"
FAILED: Final = {pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED}
"""Exit codes of a test that failed, or that an exception such as KeyboardInterrupt ended."""
LIBRARIES: Final = ("django.contrib.auth.hashers", "django.test", "factory", "hypothesis")
IMPORTED_BEFORE: Final = "ignore::pytest.PytestAssertRewriteWarning"
OURS: Final = {"benchmarks", "example_project", "pulljobs", "pyspark_pulljobs", "tests"}


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


class Trial(NamedTuple):
    """Result of a mutation: caught, SURVIVED or NOT RUN, and the failure of its test."""

    fate: str
    failure: str = ""


def replay(mutations: Iterable[Mutation], database: str) -> Iterator[tuple[Mutation, Trial]]:
    """Apply each mutation in turn. Yield it with the result of its test."""
    for library in LIBRARIES:
        importlib.import_module(library)
    makes_tables = True
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory) / "tree"
        shutil.copytree(BASE_DIR, tree, ignore=LEFT_OUT)
        for mutation in mutations:
            original = (tree / mutation.file).read_text("utf-8")
            mutation.apply(tree)
            is_migration = "/migrations/" in mutation.file
            kept = "--create-db" if makes_tables or is_migration else "--reuse-db"
            yield mutation, _try(tree, database, mutation.test, kept)
            (tree / mutation.file).write_text(original, "utf-8")
            makes_tables = is_migration  # the next test would run on the broken tables


def _try(tree: Path, database: str, test: str, kept: str) -> Trial:
    arguments = [test, "-q", "-x", kept, "-p", "no:cacheprovider", "-W", IMPORTED_BEFORE]
    environment = {"PULLJOBS_STATE_DIR": str(state_directory()), "TEST_DATABASE": database}
    output = tree.parent / "output"
    process = multiprocessing.get_context("fork").Process(
        target=_run_pytest, args=(tree, arguments, environment, output)
    )
    process.start()
    process.join(PATIENCE)
    if process.is_alive():
        process.kill()
        process.join()
        return Trial(CAUGHT, f"no end in {PATIENCE} s")
    if process.exitcode == pytest.ExitCode.OK:
        return Trial("SURVIVED")
    lines = output.read_text("utf-8").strip().splitlines()
    errors = [line[1:].strip() for line in lines if line.startswith("E  ")]
    return Trial(
        CAUGHT if process.exitcode in FAILED else "NOT RUN", errors[0] if errors else lines[-1]
    )


def _run_pytest(
    tree: Path, arguments: Sequence[str], environment: Mapping[str, str], output: Path
) -> None:
    """Run tests of another tree in this forked process, and exit with pytest's code."""
    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(environment)
    os.chdir(tree)
    sys.path[:] = [str(tree) if Path(path) == BASE_DIR else path for path in sys.path]
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]
    sys.exit(pytest.main([*arguments]))


def read_part(text: str) -> tuple[int, int]:
    """Read `K/N`, which chooses every Nth mutation from the Kth on."""
    number, _slash, count = text.partition("/")
    if not 1 <= int(number) <= int(count):
        raise ValueError(text)
    return int(number), int(count)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], help="texts of case, file or test")
    parser.add_argument("--part", type=read_part, default=(1, 1), help="K/N: every Nth, from K on")
    options = parser.parse_args(arguments)
    number, count = options.part
    chosen = [
        mutation
        for path in lists()
        for mutation in read_list(path)
        if mutation.old
        if not options.only or any(text in mutation.text for text in options.only)
    ][number - 1 :: count]
    fates: Counter[str] = Counter()
    for mutation, trial in replay(chosen, f"{DATABASE}_{number}"):
        fates[trial.fate] += 1
        print(f"{trial.fate:8} {mutation.text.strip()}: {trial.failure}", flush=True)
    print(", ".join(f"{count} {fate}" for fate, count in fates.items()))
    return int(fates[CAUGHT] < len(chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
