import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from example_project.state import BASE_DIR
from tests.example.processes import project

Told = dict[str, Any]
Faults = Callable[..., Told]


@pytest.fixture(scope="session")
def state() -> Iterator[Path]:
    """One server for all runs of this process, which takes a second or two to make."""
    with project() as made:
        yield made.cluster.parent


@pytest.fixture
def faults(state: Path) -> Faults:
    """`python -m benchmarks faults` with these flags, to its end: what it told."""

    def run(*flags: str) -> Told:
        command = [sys.executable, "-m", "benchmarks", "faults", "--json", "--state", str(state)]
        environment = {**os.environ, "PULLJOBS_POSTGRES_FSYNC": "off"}
        done = subprocess.run(
            [*command, *flags], cwd=BASE_DIR, env=environment, capture_output=True, text=True
        )
        assert done.stdout, done.stderr
        told: Told = json.loads(done.stdout)
        assert done.returncode == (0 if told["clean"] else 1), done.stderr
        return told

    return run
