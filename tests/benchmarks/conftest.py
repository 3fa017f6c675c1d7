from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.example.processes import project


@pytest.fixture(scope="session")
def state() -> Iterator[Path]:
    """State directory of a server with fsync. Each process of the suite has its own."""
    with project() as made:
        yield made.cluster.parent
