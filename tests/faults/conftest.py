import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from example_project.state import BASE_DIR
from tests.example.processes import project

HERE: Final = Path(__file__).parent
Report = Any
"""Parsed JSON of `python -m benchmarks faults`: a report, or a list with one for each round."""
Faults = Callable[..., Report]


@pytest.hookimpl(tryfirst=True)  # also before xdist's hook, when this folder is named
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and "state" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("faults"))  # they share a server


@pytest.fixture(scope="session")
def state() -> Iterator[Path]:
    """Yield the state directory of the embedded server that all runs of the session use."""
    with project() as made:
        yield made.cluster.parent


@pytest.fixture
def faults(state: Path) -> Faults:
    """Return a function that runs `python -m benchmarks faults` and returns its report."""

    def run(*flags: str) -> Report:
        command = [sys.executable, "-m", "benchmarks", "faults", "--json", "--state", str(state)]
        environment = {**os.environ, "PULLJOBS_POSTGRES_FSYNC": "off"}
        done = subprocess.run(
            [*command, *flags], cwd=BASE_DIR, env=environment, capture_output=True, text=True
        )
        assert done.stdout, done.stderr
        report = json.loads(done.stdout)
        reports = report if isinstance(report, list) else [report]
        is_clean = all(each["clean"] for each in reports)
        assert done.returncode == (0 if is_clean else 1), done.stderr
        return report

    return run
