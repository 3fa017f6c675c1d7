from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.example.processes import project

HERE: Final = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # also before xdist's hook, when this folder is named
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and "state" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("benchmarks"))  # they share a server


@pytest.fixture(scope="session")
def state() -> Iterator[Path]:
    """Create a PostgreSQL server with fsync, and return the directory of its state."""
    with project() as made:
        yield made.cluster.parent
