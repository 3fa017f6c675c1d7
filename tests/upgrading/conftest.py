import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.example.processes import open_directory


@pytest.fixture(scope="session")
def older() -> Iterator[Path]:
    """Tree of the older release."""
    with (
        open_directory() as directory,
        tarfile.open(Path(__file__).with_name("older.tar.xz")) as it,
    ):
        it.extractall(directory, filter="data")
        yield directory
