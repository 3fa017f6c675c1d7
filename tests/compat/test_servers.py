"""The storage tests pass on several versions of PostgreSQL, and through PgBouncer."""

import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pyspark_pulljobs import adbc, connecting
from tests.compat.servers import (
    WHOLE,
    own,
    pgbouncer,
    postgres,
    storage_suite,
    suite,
    wheel_programs,
)
from tests.example.processes import open_directory
from tests.requirements import debian_postgres, require

pytestmark = [pytest.mark.slow, pytest.mark.processes]
of_debian = pytest.mark.xdist_group("postgresql 15")
behind_pgbouncer = pytest.mark.xdist_group("pgbouncer")
"""Groups of tests that share a server: each would take longer to make than to use."""
WORKER = [f"tests/worker/test_{part}.py" for part in ("settling", "passes", "flusher", "leases")]
EVERY = 1 if WHOLE else 6
OTHER = os.environ.get("PULLJOBS_TEST_POSTGRES", "")


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with open_directory() as opened:
        yield opened


@pytest.fixture(scope="module")
def debian(directory: Path) -> Iterator[int]:
    """Run Debian's PostgreSQL 15, the oldest version that is tested. Return its port."""
    with postgres(debian_postgres(15), own(directory / "debian")) as port:
        yield port


def assert_passed(output: str, at_least: int = 100) -> None:
    passed = re.search(r"(\d+) passed", output)
    assert passed, output
    assert int(passed[1]) >= at_least, output


def test_postgresql_16(directory: Path) -> None:
    """A sixth of the storage tests, or with PULLJOBS_TEST_SERVERS=1 all, pass on PostgreSQL 16."""
    with postgres(wheel_programs(16), own(directory / "16")) as port:
        assert_passed(storage_suite(port, every=EVERY))


@of_debian
def test_postgresql_15_of_debian(debian: int) -> None:
    """A sixth or all of the tests of storage and plans pass on PostgreSQL 15, the oldest tested."""
    assert_passed(storage_suite(debian, plans=True, every=EVERY), 250)


@of_debian
def test_claims_of_many_priorities_are_not_compiled(debian: int, directory: Path) -> None:
    """Claims of many priorities use no JIT, which Debian's server has and which takes seconds."""
    explained = "-c session_preload_libraries=auto_explain -c auto_explain.log_min_duration=0"
    claims = "tests/storage/test_claim.py::test_claims_find_jobs_of_more_priorities_than_have_marks"
    url = f"postgres://pulljobs@127.0.0.1:{debian}/postgres"
    suite(claims, DATABASE_URL=url, DATABASE_POOLED="", PGOPTIONS=explained)
    log = (directory / "debian" / "log" / "log").read_text()
    assert "Query Text: -- Claim jobs of a consumer" in log
    assert "JIT:" not in log


@pytest.mark.skipif(not OTHER, reason="for PULLJOBS_TEST_POSTGRES, where its programs are")
def test_another_postgresql(directory: Path) -> None:
    """All storage tests pass on the server whose programs PULLJOBS_TEST_POSTGRES names."""
    with postgres(Path(OTHER), own(directory / "other")) as port:
        assert_passed(storage_suite(port, plans=True))


@pytest.fixture(scope="module")
def pooled(directory: Path) -> Iterator[int]:
    """Run a server behind PgBouncer in transaction mode. Return the pooler's port."""
    program = require("pgbouncer")
    server, pooler = own(directory / "server"), own(directory / "pooler")
    with (
        postgres(wheel_programs(18), server) as port,
        pgbouncer(program, "127.0.0.1", port, pooler) as pooled,
    ):
        yield pooled


@behind_pgbouncer
def test_pgbouncer_in_transaction_mode(pooled: int) -> None:
    """Every sixth storage test passes through PgBouncer, or with PULLJOBS_TEST_SERVERS=1 all."""
    assert_passed(storage_suite(pooled, pooled=True, every=EVERY))


@behind_pgbouncer
def test_workers_behind_pgbouncer_in_transaction_mode(pooled: int) -> None:
    """Some test files of the worker pass, and with PULLJOBS_TEST_SERVERS=1 all of them."""
    url = f"postgres://pulljobs@127.0.0.1:{pooled}/postgres"
    paths = ["tests/worker"] if WHOLE else WORKER
    output = suite(*paths, DATABASE_URL=url, DATABASE_POOLED="1")
    assert_passed(output, 400 if WHOLE else 23)


@behind_pgbouncer
def test_sparks_tasks_connect_through_pgbouncer_in_transaction_mode(pooled: int) -> None:
    """Sessions have time zone UTC and encoding UTF8 without the connection parameter `options`."""
    dsn = connecting.parse_dsn(
        {"dsn": f"host=127.0.0.1 port={pooled} dbname=postgres user=pulljobs"}
    )
    settings = "current_setting('TimeZone') AS zone, current_setting('client_encoding') AS encoding"
    with closing(connecting.connect(dsn)) as rows, closing(adbc.connect(dsn)) as arrow:
        with arrow.execute(f"SELECT {settings}") as answer:
            [row] = answer.read_all().to_pylist()
        assert row == {"zone": "UTC", "encoding": "UTF8"}
        assert rows.execute(f"SELECT {settings}".encode()).fetchall() == [("UTC", "UTF8")]
