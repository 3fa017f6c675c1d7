"""The checks of a change pass only where every test passed in the end."""

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
    pytest) mkdir -p .pytest_cache/v/cache
        echo '{"test_sample.py::test_that_fails_beside_others@group": true}' \\
            > .pytest_cache/v/cache/lastfailed
        exit "$CODE" ;;
    *) exec "$PYTHON" "$@" ;;
esac
"""


@pytest.mark.parametrize(("code", "ends_with"), [(0, 0), (1, 0), (2, 2), (3, 3)])
def test_only_tests_that_failed_run_again(tmp_path: Path, code: int, ends_with: int) -> None:
    """After an interrupt or an internal error of pytest other tests may not have run at all."""
    script = (BASE_DIR / ".ci" / "run").read_text("utf-8")
    setup, begun, tested = script.partition("rm -rf .pytest_cache\n")
    shell = setup.partition("\ncd ")[0] + "\n" + begun + tested
    (tmp_path / "README.md").write_text(f"    {COMMAND}\n")
    (tmp_path / "test_sample.py").write_text("def test_that_fails_beside_others() -> None: ...\n")
    (tmp_path / "python").write_text(RUN)
    (tmp_path / "python").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    ours = {name: value for name, value in os.environ.items() if "DJANGO" not in name}
    done = subprocess.run(
        ["bash", "-c", shell],
        cwd=tmp_path,
        env={**ours, "PATH": path, "PYTHON": sys.executable, "CODE": str(code)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == ends_with, done.stdout + done.stderr
    assert ("1 passed" in done.stdout) == (code == 1)


def test_a_readme_without_a_test_command_fails(tmp_path: Path) -> None:
    script = (BASE_DIR / ".ci" / "run").read_text("utf-8")
    tested = script.partition("rm -rf .pytest_cache\n")[2]
    (tmp_path / "README.md").write_text("Run the tests as you like.\n")
    done = subprocess.run(["bash", "-c", tested], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "README.md has no command" in done.stderr
