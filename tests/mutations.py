"""Break the code as written down, one line at a time, and see the named test fail.

    python -m tests.mutations [--only TEXT ...] [--tables]

`mutations*.toml` of a folder of tests lists `[[mutation]]`s: the case, the file, `old` text that is
there once, `new` text in its place, the test that must fail then, and what was `seen`. Each is
tried in a copy of the working tree. What was only ever done by hand has `what` instead of texts.
`--tables` only writes the `MUTATIONS.md` beside each list.
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
HEAD: Final = """# What was broken to see a test fail

Written by `python -m tests.mutations --tables` from `{source}`; without `--tables` it breaks
the code again, in a copy. Paths are below `pulljobs/` and `tests/`.

| case | test | mutation | failure seen |
|---|---|---|---|
"""


@dataclass(frozen=True, kw_only=True)
class Mutation:
    case: str
    test: str
    seen: str
    file: str = ""
    old: str = ""
    new: str = ""
    what: str = ""
    """In words, where the texts don't tell, or nobody wrote them down."""

    @property
    def text(self) -> str:
        return f"{self.case} {self.file} {self.test} {self.what}"

    def apply(self, tree: Path) -> None:
        path = tree / self.file
        source = path.read_text("utf-8")
        if (count := source.count(self.old)) != 1:
            raise ValueError(f"{self.file} has {count} times, not once: {self.old!r}")
        path.write_text(source.replace(self.old, self.new), "utf-8")


def lists() -> list[Path]:
    return sorted((BASE_DIR / "tests").rglob("mutations*.toml"))


def read(path: Path) -> list[Mutation]:
    return [Mutation(**row) for row in tomllib.loads(path.read_text("utf-8"))["mutation"]]


def table(path: Path) -> str:
    rows = [
        f"| {one.case} | `{_short(one.test)}` | {_change(one)} | {one.seen} |" for one in read(path)
    ]
    return HEAD.format(source=path.name) + "\n".join(rows) + "\n"


def replay(mutations: Iterable[Mutation]) -> Iterator[tuple[Mutation, str]]:
    """Each with the line that its test failed with; empty: it survived."""
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
            makes_tables = is_migration  # the next finds tables that this one broke


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
    said = [line[1:].strip() for line in ran.stdout.splitlines() if line.startswith("E  ")]
    return said[0] if said else ran.stdout.strip().splitlines()[-1]


def _short(path: str) -> str:
    return path.removeprefix("tests/").removeprefix("pulljobs/")


def _change(one: Mutation) -> str:
    if not one.old:
        return f"{one.what} (by hand)"
    change = f"`{_line(one.old)}` to `{_line(one.new)}`" if one.new else f"no `{_line(one.old)}`"
    return f"`{_short(one.file)}`: {one.what or change}"


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], help="words of case, file or test")
    parser.add_argument("--tables", action="store_true", help="write the tables and stop")
    options = parser.parse_args(arguments)
    if options.tables:
        for path in lists():
            path.with_name("MUTATIONS.md").write_text(table(path), "utf-8")
        return 0
    chosen = [
        one
        for path in lists()
        for one in read(path)
        if one.old
        if not options.only or any(word in one.text for word in options.only)
    ]
    survived = 0
    for mutation, failure in replay(chosen):
        survived += not failure
        print(f"{'caught  ' if failure else 'SURVIVED'} {mutation.text.strip()}: {failure}")
    print(f"{len(chosen) - survived} caught, {survived} survived")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
