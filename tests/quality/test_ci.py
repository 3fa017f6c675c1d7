"""`.ci/run` passes only if every test passed, at the first or the second attempt."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from example_project.state import BASE_DIR

COMMAND = "python -m pip install . && python -m pytest -n auto"
RUN = """#!/bin/sh
case "$2" in
    pip) exit 0 ;;
    pytest) echo ran
        mkdir -p .pytest_cache/v/cache
        echo '{"test_sample.py::test_that_fails_beside_others@group": true}' \\
            > .pytest_cache/v/cache/lastfailed
        exit "$CODE" ;;
    *) exec "$PYTHON" "$@" ;;
esac
"""


@pytest.mark.parametrize(("code", "ends_with"), [(0, 0), (1, 0), (2, 2), (3, 3)])
def test_only_tests_that_failed_run_again(tmp_path: Path, code: int, ends_with: int) -> None:
    """Failed tests get a second run, but an interrupt or an internal error of pytest is final."""
    done = run_tests(tmp_path, CODE=str(code))
    assert done.returncode == ends_with, done.stdout + done.stderr
    assert ("1 passed" in done.stdout) == (code == 1)


def test_nothing_runs_without_the_programs_that_tests_need(tmp_path: Path) -> None:
    """`.ci/run` fails, and runs no test, if the programs could not be installed."""
    done = run_tests(tmp_path, "(exit 100) & programs=$!", CODE="0")
    assert done.returncode == 100, done.stdout + done.stderr
    assert "ran" not in done.stdout


def run_tests(
    directory: Path, before: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the part of `.ci/run` that runs tests, after the commands in `before`.

    A replacement of Python installs nothing, and its first pytest ends with the exit code `CODE`.
    """
    script = (BASE_DIR / ".ci" / "run").read_text("utf-8")
    setup, begun, tested = script.partition("rm -rf .pytest_cache\n")
    shell = setup.partition("\ncd ")[0] + f"\n{before}\n{begun}{tested}"
    (directory / "README.md").write_text(f"    {COMMAND}\n")
    (directory / "test_sample.py").write_text("def test_that_fails_beside_others() -> None: ...\n")
    (directory / "python").write_text(RUN)
    (directory / "python").chmod(0o755)
    path = f"{directory}{os.pathsep}{os.environ['PATH']}"
    ours = {name: value for name, value in os.environ.items() if "DJANGO" not in name}
    return subprocess.run(
        ["bash", "-c", shell],
        cwd=directory,
        env={
            **ours,
            "PATH": path,
            "PYTHON": sys.executable,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # they take seconds
            **environment,
        },
        capture_output=True,
        text=True,
    )


def test_a_readme_without_a_test_command_fails(tmp_path: Path) -> None:
    script = (BASE_DIR / ".ci" / "run").read_text("utf-8")
    tested = script.partition("rm -rf .pytest_cache\n")[2]
    (tmp_path / "README.md").write_text("Run the tests as you like.\n")
    done = subprocess.run(["bash", "-c", tested], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "README.md has no command" in done.stderr
