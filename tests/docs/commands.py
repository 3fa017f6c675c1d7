"""Command lines of the pages, and whether the programs they name take them."""

import argparse
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator

from django.core.management import get_commands, load_command_class
from markdown_it import MarkdownIt

from benchmarks import __main__ as benchmarks
from example_project.postgres.binaries import TREES
from example_project.state import BASE_DIR
from pulljobs.metrics.__main__ import FILES

EXTRAS = re.compile(r"(?:pulljobs|\.)\[([\w,]+)\]$")


def commands(text: str, prompt: str = "$ ") -> Iterator[list[str]]:
    """Of a block, without what is printed in between; one may go on in the next line."""
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith(prompt) and line.strip() not in ("", prompt.strip()):
            yield shlex.split(line[len(prompt) :], comments=True)


def mentioned(text: str) -> Iterator[list[str]]:
    """Commands of this project's in the running text: `manage.py pulljobs doctor --json`."""
    for token in MarkdownIt().enable("table").parse(text):
        for child in token.children or ():
            found = re.match(r"(?:python )?manage\.py ([a-z_]+.*)", child.content)
            if child.type == "code_inline" and found:
                yield found[1].split()


def parser(name: str) -> argparse.ArgumentParser:
    """Of a command of `manage.py`; KeyError if there is none."""
    app = get_commands()[name]
    command = load_command_class(app, name) if isinstance(app, str) else app
    return command.create_parser("manage.py", name)


def check(words: list[str]) -> None:
    """SystemExit, KeyError or AssertionError if the program would not take these words."""
    for start, takes in PROGRAMS.items():
        if words[: len(start)] == list(start):
            takes(words[len(start) :])
            return
    raise AssertionError(f"nobody checks {' '.join(words)!r}: add it to PROGRAMS")


def check_mentioned(words: list[str]) -> None:
    """Like `check`, of a command whose values may be left out, and written as `NAME` or `...`."""
    now = parser(words[0])
    for word in words[1:]:
        below = [one for one in now._actions if isinstance(one, argparse._SubParsersAction)]
        if word.startswith("--"):
            assert word.split("=")[0] in now._option_string_actions, word
        elif below and word != "...":
            now = below[0].choices[word]


def _installs(words: list[str]) -> None:
    known = tomllib.loads((BASE_DIR / "pyproject.toml").read_text("utf-8"))["project"]
    for found in filter(None, map(EXTRAS.search, words)):
        assert set(found[1].split(",")) <= set(known["optional-dependencies"]), found[0]


def _manages(words: list[str]) -> None:
    parser(words[0]).parse_args(words[1:])


def _measures(words: list[str]) -> None:
    benchmarks._options().parse_args(words)


def _prints(words: list[str]) -> None:
    assert words[0] in FILES
    assert words[1] == ">"


def _contains(words: list[str]) -> None:
    """A container of a server that we know; Docker itself is not here."""
    image, _colon, version = words[-1].partition(":")
    assert (image, int(version)) in {("postgres", tree) for tree in TREES}


def _exports(words: list[str]) -> None:
    """What libpq reads, and with it Django where its settings say nothing."""
    assert {word.partition("=")[0] for word in words} <= {"PGHOST", "PGUSER", "PGPASSWORD"}


PROGRAMS: dict[tuple[str, ...], Callable[[list[str]], None]] = {
    ("python", "-m", "pip", "install"): _installs,
    ("python", "-m", "benchmarks"): _measures,
    ("python", "-m", "pulljobs.metrics"): _prints,
    ("python", "manage.py"): _manages,
    ("docker", "run"): _contains,
    ("export",): _exports,
}
