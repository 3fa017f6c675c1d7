"""The storage suite passes on every server that the README names."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.servers import pgbouncer, postgres, storage_suite, wheel_programs
from tests.example.processes import open_directory
from tests.requirements import debian_postgres, require

pytestmark = [pytest.mark.slow, pytest.mark.processes]
AT_LEAST = 400


@pytest.fixture
def directory() -> Iterator[Path]:
    with open_directory() as opened:
        yield opened


def assert_passed(output: str) -> None:
    passed = re.search(r"(\d+) passed", output)
    assert passed, output
    assert int(passed[1]) >= AT_LEAST, output


def test_postgresql_16(directory: Path) -> None:
    with postgres(wheel_programs(16), directory) as port:
        assert_passed(storage_suite(port))


def test_postgresql_15_of_debian(directory: Path) -> None:
    with postgres(debian_postgres(15), directory) as port:
        assert_passed(storage_suite(port, plans=True))


def test_pgbouncer_in_transaction_mode(directory: Path) -> None:
    program = require("pgbouncer")
    server, pooler = directory / "server", directory / "pooler"
    server.mkdir()
    pooler.mkdir()
    with (
        postgres(wheel_programs(18), server) as port,
        pgbouncer(program, "127.0.0.1", port, pooler) as pooled,
    ):
        assert_passed(storage_suite(pooled, pooled=True))
