from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.processes import Stage


@pytest.fixture
def stage(transactional_db: None, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    try:
        yield made
    finally:
        made.end()
