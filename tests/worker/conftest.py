from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.webhooks.conftest import endpoint
from tests.worker.processes import Stage

__all__ = ["endpoint"]


@pytest.fixture
def stage(transactional_db: None, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    try:
        yield stage
    finally:
        stage.end()
