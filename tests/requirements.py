"""Programs that some tests need: the tests are skipped without them, or fail where all must run."""

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest


def not_run(needed: str) -> NoReturn:
    """Skip the test, naming the program to install, or fail if PULLJOBS_REQUIRE_ALL is 1."""
    reason = f"not run: install {needed}"
    if os.environ.get("PULLJOBS_REQUIRE_ALL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def require(program: str) -> Path:
    """Return the path of a program such as "pgbouncer". Without it, skip or fail the test."""
    path = os.environ.get("PATH", os.defpath)
    # Debian keeps servers in a directory that an ordinary user's PATH does not have.
    location = shutil.which(program, path=f"{path}{os.pathsep}/usr/sbin")
    return Path(location) if location else not_run(program)


def chromium() -> Path:
    """Return the path of Chromium, or of its shell without windows if Debian's package has that.

    The shell takes a third of the processor time for a page.
    """
    shell = shutil.which("chromium-headless-shell")
    return Path(shell) if shell else require("chromium")


def debian_postgres(version: int = 15) -> Path:
    """Return the directory of the programs of Debian's PostgreSQL."""
    directory = Path(f"/usr/lib/postgresql/{version}/bin")
    return directory if (directory / "initdb").exists() else not_run(f"postgresql-{version}")
