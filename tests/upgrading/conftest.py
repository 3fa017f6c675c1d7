import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from example_project.state import BASE_DIR
from tests.example.processes import open_directory

RELEASE = Path(__file__).with_name("older.tar.xz")
PARTS = ("pulljobs", "pyspark_pulljobs", "benchmarks", "example_project")


@pytest.fixture(scope="session")
def older() -> Iterator[Path]:
    """Yield a directory with the last release, or with this checkout if there is none yet."""
    with open_directory() as directory:
        if RELEASE.exists():
            with tarfile.open(RELEASE) as archive:
                archive.extractall(directory, filter="data")
        else:
            ignored = shutil.ignore_patterns("__pycache__")
            for part in PARTS:
                shutil.copytree(BASE_DIR / part, directory / part, ignore=ignored)
        yield directory
