"""The core works where `pulljobs.lake` is not installed and Spark's packages are missing."""

import os
import re
import subprocess
import sys
from typing import Final

import pytest

from example_project.state import BASE_DIR
from tests import second
from tests.compat.servers import WHOLE

CHOSEN: Final = (
    "tests/compat/core.py",
    "tests/publishing/test_publish.py",
    "tests/storage/test_finish.py",
    "tests/storage/test_partitions.py",
    "tests/worker/test_settling.py",
    "tests/commands/test_commands.py",
    "tests/commands/test_prune.py",
    "tests/dashboard/test_history.py",
    "tests/dashboard/test_page.py",
    "tests/databases/test_grants.py",
    "tests/databases/test_routers.py",
    "tests/metrics/test_gauges.py",
)


EVERY: Final = 1 if WHOLE else 3


@pytest.mark.slow
@pytest.mark.processes
def test_the_core_passes_its_tests_without_the_lake_and_has_no_trace_of_it() -> None:
    """Every third test of the files in CHOSEN passes, or with PULLJOBS_TEST_SERVERS=1 all.

    The tests of `core.py`, which look for tables, pages, routes, metrics and commands of the lake,
    run in either case.
    """
    output = run_python("-m", "tests.compat.without_lake", *CHOSEN, "-q", "-m", "not slow")
    passed = re.search(r"(\d+) passed", output)
    assert passed, output
    assert int(passed[1]) >= 354 // EVERY, output


def run_python(*arguments: str) -> str:
    """Run Python with a test database of its own. Return the output."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env={
            **{name: value for name, value in os.environ.items() if "PYTEST" not in name},
            **second.NOT,
            "TEST_DATABASE": "test_without_lake",
            "PULLJOBS_TEST_EVERY": str(EVERY),
        },
        cwd=BASE_DIR,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6_000:]
    return done.stdout
