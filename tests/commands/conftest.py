from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from pulljobs.models import Consumer
from pulljobs.storage import nodes
from tests.diagnosis.commands import answer
from tests.factories import USING, ConsumerFactory
from tests.sessions import query

HERE = Path(__file__).parent
BROKER = """
[initial-channels]
news=News
[initial-channel-tokens]
news=secret
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder as `owner`: operators run most verbs as the tables' owner."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.owner)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the time limit of `top` for reading each of its tables, for busy machines."""
    monkeypatch.setattr("pulljobs.management.top.frame.PATIENCE", timedelta(minutes=1))


@pytest.fixture
def consumer(transactional_db: None) -> Consumer:
    """Create partitions, a node and a consumer, and return the consumer."""
    answer("maintain")
    nodes.register(USING, uuid4(), "host:1")
    created: Consumer = ConsumerFactory.create(channel__name="orders", name="invoicing")
    return created


@pytest.fixture
def no_archive(consumer: Consumer) -> Iterator[None]:
    """Make this session act as a database role that may read all tables except the archive."""
    role = f"pulljobs_reader_of_test_{uuid4().hex[:8]}"
    query(f"CREATE ROLE {role}; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    query(f"REVOKE ALL ON pulljobs_archived_job FROM {role}; SET ROLE {role}")
    yield
    query(f"RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Create the files for {broker} and {lines} in command lines. Return their paths by name."""
    (tmp_path / "broker.cfg").write_text(BROKER)
    (tmp_path / "lines").write_text('{"order": 1}\n\n{"order": 2}\n')
    return {"broker": str(tmp_path / "broker.cfg"), "lines": str(tmp_path / "lines")}
