from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.demo.running import Project, own_database


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """Yield the example project with a database of its own. Its processes end with the test."""
    with ExitStack() as stack:
        url, session = stack.enter_context(own_database())
        made = Project(url, session, history=tmp_path / "history")
        stack.callback(made.end)
        yield made
