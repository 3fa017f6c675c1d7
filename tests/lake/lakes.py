"""Contents of the lake and of PostgreSQL, read by other means than those under test."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlencode

import duckdb
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from django.conf import settings as django_settings
from django.core.management import call_command
from django.db import connection, connections
from django.test import override_settings

from example_project.state import BASE_DIR
from pulljobs.conf import settings
from pulljobs.engine.sql import statement
from pulljobs.lake.locations import choose_storage_options
from tests.lake.object_store import StorePlace
from tests.sessions import query, wait_for_other_transactions

EVERYTHING: Final = {"low_id": 0, "high_id": 2**63 - 1, "high_xid": 2**62}
COLUMNS: Final = {
    "archive": (
        "id, job_id, message_id, consumer_id, state, coalesce(reason, ''), epoch_us(created_at),"
        " coalesce(epoch_us(claimed_at)::text, ''), coalesce(epoch_us(started_at)::text, ''),"
        " epoch_us(settled_at), coalesce(floor(run_seconds * 1e9)::bigint::text, ''),"
        " retry_count, deliveries, coalesce(node_id, ''), coalesce(lease_token, ''),"
        " coalesce(md5(error), ''), coalesce(md5(result), '')"
    ),
    "messages": (
        "id, channel_id, coalesce(producer_id::text, ''), epoch_us(published_at), priority,"
        " coalesce(md5(key), ''), coalesce(md5(client_message_id), ''), md5(content_type),"
        " md5(headers), payload_bytes"
    ),
}
Sums = tuple[int, int, int]


Place = Path | StorePlace
SCHEME: Final = os.environ.get("PULLJOBS_TEST_LAKE", "")
"""URL scheme of the bucket in which all lakes of the tests are, or "" for directories."""


@contextmanager
def lake_at(place: Place) -> Iterator[Place]:
    """Set `PULLJOBS['LAKE']` for the block, to a place in the bucket if tests use one. Yield it."""
    if SCHEME and isinstance(place, Path):
        place = StorePlace(SCHEME)
    with override_settings(PULLJOBS={**django_settings.PULLJOBS, "LAKE": setting_of(place)}):
        yield place


def setting_of(place: Place) -> str:
    """Return the value of `PULLJOBS['LAKE']` for a place, whose URL in the ledger may differ."""
    return str(place) if isinstance(place, Path) else place.setting


def run(verb: str, *flags: str) -> dict[str, Any]:
    """Run `pulljobs lake VERB --json` and return the document that it prints."""
    wait_for_other_transactions()
    out = StringIO()
    call_command("pulljobs", "lake", verb, "--json", *flags, stdout=out)
    document: dict[str, Any] = json.loads(out.getvalue())
    return document


def delta(lake: Place, table: str) -> DeltaTable:
    where = str(lake / table)
    return DeltaTable(where, storage_options=choose_storage_options(where, os.environ))


def files(lake: Place, table: str) -> list[str]:
    try:
        return delta(lake, table).file_uris()
    except TableNotFoundError:
        return []


def read_rows(lake: Place, table: str, columns: str) -> list[tuple[Any, ...]]:
    """Read columns of all rows of a table in the lake, by DuckDB from the files in its log."""
    if not (paths := files(lake, table)):
        return []
    with TemporaryDirectory() as directory, duckdb.connect() as duck:
        if not isinstance(lake, Path):
            paths = [lake.download(path, Path(directory)) for path in paths]
        return duck.execute(f"SELECT {columns} FROM read_parquet(?)", [paths]).fetchall()


def lakes(lake: Place, table: str) -> Sums:
    """Return the number of rows of a table of the lake, the sum of ids and the sum of checksums."""
    row = f"cast('0x' || substr(md5(concat_ws('|', {COLUMNS[table]})), 1, 15) AS bigint)"
    rows = read_rows(lake, table, f"count(*), sum(id), sum({row})")
    count, ids, checksum = rows[0] if rows else (0, 0, 0)
    return int(count), int(ids or 0), int(checksum or 0)


def ours(table: str) -> Sums:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*), coalesce(sum(id), 0), coalesce(sum(checksum), 0)"
            f" FROM ({statement(f'checksum_{table}')}) AS row",
            EVERYTHING,
        )
        count, ids, checksum = cursor.fetchone()
    return int(count), int(ids), int(checksum)


def assert_same(lake: Place) -> None:
    """Check that the lake has every row of PostgreSQL once and unchanged, and no other."""
    for table, name in {"archive": "pulljobs_archived_job", "messages": "pulljobs_message"}.items():
        there = [id for (id,) in read_rows(lake, table, "id")]
        here = {id for (id,) in query(f"SELECT id FROM {name}")}
        assert len(set(there)) == len(there), "a row is there twice"
        assert set(there) - here == set(), "a row is there that never was"
        assert here - set(there) == set(), "a row was lost"
        assert lakes(lake, table) == ours(table)


class Cutter:
    """Process that runs exports in forks of itself, so that each can be killed at a step."""

    def __init__(self, *flags: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.lake.cutting", *flags],
            cwd=BASE_DIR,
            env={**os.environ, **environment()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def cut(self, step: str) -> int:
        """Run an export that is killed at this step. Return the signal that ended it, or 0."""
        wait_for_other_transactions()
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{step}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer.startswith("ended "), answer
        return int(answer.split()[1])

    def end(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(300)
        self._process.stdout.close()


def environment(password: str = "") -> dict[str, str]:
    """Return the environment of a process that uses the lake and the database of this test.

    If the server needs no password, its URL has the given one.
    """
    known = {"password": password, **connections["default"].get_connection_params()}
    place = {key: known[key] for key in ("host", "port", "user", "password") if known.get(key)}
    return {
        "DATABASE_URL": f"postgres:///{known['dbname']}?{urlencode(place)}",
        "DJANGO_SETTINGS_MODULE": "example_project.settings",
        "LAKE": settings().LAKE,
    }
