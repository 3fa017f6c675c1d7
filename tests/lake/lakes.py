"""What the lake and PostgreSQL hold, read by neither of the readers that wrote it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import duckdb
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from django.core.management import call_command
from django.db import connection, connections
from django.test import override_settings

from example_project.state import BASE_DIR
from pulljobs.engine.sql import statement
from tests.sessions import query, wait_for_other_transactions

EVERYTHING: Final = {"low_id": 0, "high_id": 2**63 - 1, "high_xid": 2**62}
COLUMNS: Final = {
    "archive": (
        "id, job_id, message_id, consumer_id, state, coalesce(reason, ''), epoch_us(created_at),"
        " coalesce(epoch_us(claimed_at)::text, ''), epoch_us(settled_at), retry_count, deliveries,"
        " coalesce(node_id, ''), coalesce(lease_token, ''), coalesce(md5(error), ''),"
        " coalesce(md5(result), '')"
    ),
    "messages": (
        "id, channel_id, coalesce(producer_id::text, ''), epoch_us(published_at), priority,"
        " coalesce(md5(key), ''), coalesce(md5(client_message_id), ''), md5(content_type),"
        " md5(headers), payload_bytes"
    ),
}
Sums = tuple[int, int, int]


@contextmanager
def lake_at(path: Path) -> Iterator[Path]:
    """PULLJOBS['LAKE'] is there meanwhile."""
    with override_settings(PULLJOBS={"LAKE": str(path)}):
        yield path


def run(verb: str, *flags: str) -> dict[str, Any]:
    """What `pulljobs lake VERB --json` prints."""
    wait_for_other_transactions()
    out = StringIO()
    call_command("pulljobs", "lake", verb, "--json", *flags, stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def files(lake: Path, table: str) -> list[str]:
    try:
        return DeltaTable(str(lake / table)).file_uris()
    except TableNotFoundError:
        return []


def read(lake: Path, table: str, columns: str) -> list[tuple[Any, ...]]:
    """By duckdb, from the files that the log names."""
    if not (paths := files(lake, table)):
        return []
    with duckdb.connect() as duck:
        return duck.execute(f"SELECT {columns} FROM read_parquet(?)", [paths]).fetchall()


def lakes(lake: Path, table: str) -> Sums:
    """Rows, sum of ids, sum of checksums."""
    row = f"cast('0x' || substr(md5(concat_ws('|', {COLUMNS[table]})), 1, 15) AS bigint)"
    found = read(lake, table, f"count(*), sum(id), sum({row})")
    count, ids, checksum = found[0] if found else (0, 0, 0)
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


def assert_same(lake: Path) -> None:
    """None lost, none too many, none twice, and all as they were."""
    for table, name in {"archive": "pulljobs_archived_job", "messages": "pulljobs_message"}.items():
        there = [id for (id,) in read(lake, table, "id")]
        here = {id for (id,) in query(f"SELECT id FROM {name}")}
        assert len(set(there)) == len(there), "a row is there twice"
        assert set(there) - here == set(), "a row is there that never was"
        assert here - set(there) == set(), "a row was lost"
        assert lakes(lake, table) == ours(table)


class Cutter:
    """Exports in processes that are killed at a step; forked off one that has all in memory."""

    def __init__(self, lake: Path, *flags: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.lake.cutting", *flags],
            cwd=BASE_DIR,
            env={**os.environ, **environment(), "LAKE": str(lake)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def cut(self, step: str) -> int:
        """The signal that ended the process, 0 if it came to its end."""
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
    """With that password where the server asks for none."""
    known = {"password": password, **connections["default"].get_connection_params()}
    place = {key: known[key] for key in ("host", "port", "user", "password") if known.get(key)}
    return {
        "DATABASE_URL": f"postgres:///{known['dbname']}?{urlencode(place)}",
        "DJANGO_SETTINGS_MODULE": "example_project.settings",
    }
