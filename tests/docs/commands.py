"""Command lines of the pages, and a check that their programs accept them."""

import argparse
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
from django.core.management import get_commands, load_command_class
from markdown_it import MarkdownIt

from benchmarks import __main__ as benchmarks
from benchmarks.pipeline.cluster import MASTER, WORKER
from example_project.postgres.binaries import TREES
from example_project.state import BASE_DIR
from pulljobs.metrics.__main__ import FILES

EXTRAS = re.compile(r"(?:pulljobs|\.)\[([\w,]+)\]$")


def commands(text: str, prompt: str = "$ ") -> Iterator[list[str]]:
    """Yield the words of each command in a block: of each line that begins with the prompt."""
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith(prompt) and line.strip() not in ("", prompt.strip()):
            yield shlex.split(line[len(prompt) :], comments=True)


def mentioned(text: str) -> Iterator[list[str]]:
    """Yield the words of each `manage.py` command that the prose of a page has in backticks."""
    for token in MarkdownIt().enable("table").parse(text):
        for child in token.children or ():
            command = re.match(r"(?:python )?manage\.py ([a-z_]+.*)", child.content)
            if child.type == "code_inline" and command:
                yield command[1].split()


def parser(name: str) -> argparse.ArgumentParser:
    """Return the parser of a command of `manage.py`. Raise KeyError if there is none."""
    app = get_commands()[name]
    command = load_command_class(app, name) if isinstance(app, str) else app
    return command.create_parser("manage.py", name)


def check(words: list[str]) -> None:
    """Raise SystemExit, KeyError or AssertionError if a program refuses this command line."""
    for start, takes in PROGRAMS.items():
        if words[: len(start)] == list(start):
            takes(words[len(start) :])
            return
    raise AssertionError(f"no check for {' '.join(words)!r}: add it to PROGRAMS")


def check_mentioned(words: list[str]) -> None:
    """Check a command whose values may be missing, or written as `NAME` or `...`."""
    now = parser(words[0])
    for argument in words[1:]:
        below = [act for act in now._actions if isinstance(act, argparse._SubParsersAction)]
        if argument.startswith("--"):
            assert argument.split("=")[0] in now._option_string_actions, argument
        elif below and argument != "...":
            now = below[0].choices[argument]


def _installs(words: list[str]) -> None:
    known = tomllib.loads((BASE_DIR / "pyproject.toml").read_text("utf-8"))["project"]
    for extras in filter(None, map(EXTRAS.search, words)):
        assert set(extras[1].split(",")) <= set(known["optional-dependencies"]), extras[0]


def _manages(words: list[str]) -> None:
    parser(words[0]).parse_args(words[1:])


def _measures(words: list[str]) -> None:
    benchmarks._options().parse_args(words)


def _prints(words: list[str]) -> None:
    assert words[0] in FILES
    assert words[1] == ">"


def _contains(words: list[str]) -> None:
    """Check that a `docker run` is of a PostgreSQL version that the project supports."""
    image, _colon, version = words[-1].partition(":")
    assert (image, int(version)) in {("postgres", tree) for tree in TREES}


def _exports(words: list[str]) -> None:
    """Check that an `export` sets only variables that libpq or Spark read."""
    known = {"PGHOST", "PGUSER", "PGPASSWORD", "SPARK_HOME"}
    assert {variable.partition("=")[0] for variable in words} <= known


def _starts_spark(words: list[str]) -> None:
    """Check that a command starts a class of Spark's standalone cluster that pip installs."""
    assert words[0] in {MASTER, WORKER}


def _serves_spark(words: list[str]) -> None:
    """Check that pip installs the script which starts a Spark Connect server."""
    assert Path(pyspark.__path__[0], "sbin", "start-connect-server.sh").exists()
    assert words[:2] == ["--wait", "--master"]


PROGRAMS: dict[tuple[str, ...], Callable[[list[str]], None]] = {
    ("python", "-m", "pip", "install"): _installs,
    ("python", "-m", "benchmarks"): _measures,
    ("python", "-m", "pulljobs.metrics"): _prints,
    ("python", "manage.py"): _manages,
    ("docker", "run"): _contains,
    ("export",): _exports,
    ("$SPARK_HOME/bin/spark-class",): _starts_spark,
    ("$SPARK_HOME/sbin/start-connect-server.sh",): _serves_spark,
}
