"""What some tests need beyond Python packages: skipped without it, failed where all is required."""

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest


def not_run(needed: str) -> NoReturn:
    """Skip, saying what to install; PULLJOBS_REQUIRE_ALL=1 makes that a failure."""
    reason = f"not run: install {needed}"
    if os.environ.get("PULLJOBS_REQUIRE_ALL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def require(program: str) -> Path:
    """The path of a program, e.g. `require("pgbouncer")`."""
    path = os.environ.get("PATH", os.defpath)
    # Debian keeps servers where an ordinary user's PATH does not look.
    found = shutil.which(program, path=f"{path}{os.pathsep}/usr/sbin")
    return Path(found) if found else not_run(program)


def debian_postgres(version: int = 15) -> Path:
    """The directory of the programs of Debian's PostgreSQL."""
    directory = Path(f"/usr/lib/postgresql/{version}/bin")
    return directory if (directory / "initdb").exists() else not_run(f"postgresql-{version}")
