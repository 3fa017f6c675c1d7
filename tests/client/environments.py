"""Interpreters that have the client and nothing of Django."""

import os
import shutil
import subprocess
import sys
import tomllib
import venv
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from example_project.state import BASE_DIR

INSTALLED = os.environ.get("PULLJOBS_TEST_INSTALL") == "1"
"""Build the wheel and install it by pip, as a user does. This takes the network."""


def without_django(directory: Path) -> Path:
    """Create an environment that has only the client. Return the directory of its programs."""
    venv.create(directory, with_pip=INSTALLED, symlinks=True)
    programs = directory / "bin"
    if INSTALLED:
        wheel = _built(directory / "wheel")
        subprocess.run(
            [str(programs / "python"), "-m", "pip", "install", f"{wheel}[client]"], check=True
        )
    else:
        _borrow(next(directory.glob("lib*/python*/site-packages")))
    return programs


def _built(directory: Path) -> Path:
    source = directory / "source"
    shutil.copytree(BASE_DIR, source, ignore=shutil.ignore_patterns(".*", "build", "*.egg-info"))
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(directory),
    ]
    subprocess.run([*command, str(source)], check=True, capture_output=True)
    [wheel] = directory.glob("*.whl")
    return wheel


def _borrow(site: Path) -> None:
    """Link the packages that the extra `client` requires from the environment of the tests."""
    (site / "pulljobs").symlink_to(BASE_DIR / "pulljobs")
    project = tomllib.loads((BASE_DIR / "pyproject.toml").read_text("utf-8"))["project"]
    asked_for = [*project["dependencies"], *project["optional-dependencies"]["client"]]
    for name in set().union(*map(_with_its_own, asked_for)):
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}:
            there = Path(str(distribution.locate_file(top)))
            if not (site / top).exists():
                (site / top).symlink_to(there)


def _with_its_own(text: str) -> set[str]:
    """Return the names of a required distribution and, with all levels, of its requirements."""
    needed = Requirement(text)
    if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
        return set()
    return {needed.name}.union(*map(_with_its_own, metadata.requires(needed.name) or ()))
