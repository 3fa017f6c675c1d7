"""Runs of `python -m benchmarks` on a server with fsync, as in production."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from example_project.state import BASE_DIR

OF_THE_SUITE: Final = {"PULLJOBS_POSTGRES_FSYNC", "DATABASE_URL"}
"""Variables that lead to the server of the tests, which may lose a commit in a crash."""


def durable_environment(state: Path) -> dict[str, str]:
    """Return the environment of a process that uses the embedded server in this directory."""
    kept = {name: value for name, value in os.environ.items() if name not in OF_THE_SUITE}
    return kept | {"PULLJOBS_STATE_DIR": str(state)}


def run(
    state: Path, command: str, *flags: str, cwd: Path = BASE_DIR
) -> subprocess.CompletedProcess[str]:
    """Run a command of `python -m benchmarks` to its end, whatever its exit code is."""
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", command, *flags],
        cwd=cwd,
        env=durable_environment(state),
        capture_output=True,
        text=True,
    )


def measure(state: Path, command: str, *flags: str) -> dict[str, Any]:
    """Run a command of `python -m benchmarks` and return its figures, even if it exits with 1."""
    done = run(state, command, "--json", *flags)
    assert done.stdout, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures
