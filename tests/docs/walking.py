"""Reader that follows a page literally, in one shell."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from django.db import connection
from psycopg import sql

from example_project.postgres.binaries import TREES, installed
from example_project.state import BASE_DIR
from tests.guides import Block
from tests.requirements import not_run
from tests.second import parameters

PATIENCE_SECONDS = 900
OURS = ("DATABASE", "DJANGO", "JOBS_", "PULLJOBS", "PYTHON", "TEST_DATABASE", "VIRTUAL_ENV", "COV")
MARK = "=== block"


def walk(blocks: list[Block], checkout: Path, environment: dict[str, str]) -> list[str]:
    """Run each `sh` block and save each `python` block under its name.

    Return what `sh` printed. All blocks share one shell, so that the directory and the activated
    environment stay.
    """
    script = "\n".join(_step(block) for block in blocks if block.kind in ("sh", "python"))
    done = subprocess.run(
        ["bash", "-eu"],
        input=script,
        cwd=checkout,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout.split(f"{MARK}\n")[1:]


def _step(block: Block) -> str:
    if block.kind == "sh":
        return f"echo '{MARK}'\n{block.text}"
    name = block.text.partition("\n")[0].removeprefix("# ")
    return f"cat > {name} <<'END'\n{block.text}END"


def assert_shows(shown: str, printed: str) -> None:
    """Check that the lines of a page were printed in that order. Numbers and times may differ."""
    lines = iter(_alike(line) for line in printed.splitlines())
    for line in shown.splitlines():
        assert line == "..." or _alike(line) in lines, f"{line!r} is not in:\n{printed}"


def _alike(line: str) -> str:
    return re.sub(r"\d[\d,.]*", "N", line.strip())


def copied(directory: Path) -> Path:
    """Copy the checkout into a directory, without built and hidden files. Return the directory."""
    for asked in ("pyproject.toml", "pulljobs/apps.py"):
        if not (BASE_DIR / asked).exists():
            not_run("a checkout: this is a part of one")
    made = ("build", "dist", "_build", "__pycache__", "*.egg-info", ".*")
    shutil.copytree(BASE_DIR, directory, ignore=shutil.ignore_patterns(*made))
    return directory


@contextmanager
def newcomer(database: str, programs: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of a new user, who has Python 3 and an empty PostgreSQL server.

    `programs` is a new directory for its PATH. The database is dropped at the end.
    """
    programs.mkdir()
    # This interpreter, because the `python3` of the system may be too old.
    python = Path(sys.base_prefix, "bin", "python{}.{}".format(*sys.version_info))
    (programs / "python3").write_text(f'#!/bin/sh\nexec "{python}" "$@"\n')
    (programs / "python3").chmod(0o755)
    known = parameters(connection.get_connection_params())
    place: dict[str, Any] = {
        key: str(known[key]) for key in ("host", "port", "user", "password") if known.get(key)
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    kept |= {f"PG{key.upper()}": value for key, value in place.items()}
    # pip takes PIP_NO_COMPILE as the value of "compile": most modules are never imported.
    path = [str(programs), kept["PATH"], str(installed() / TREES[18] / "bin")]
    try:
        yield kept | {"PATH": os.pathsep.join(path), "PIP_NO_COMPILE": "0"}
    finally:
        with psycopg.connect(**place, dbname="postgres", autocommit=True) as server:
            drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
            server.execute(drop.format(sql.Identifier(database)))
