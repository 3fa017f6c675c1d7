"""An older and a newer release work together on the tables of the newer one."""

import json
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from pulljobs.engine.sql import FRAGMENTS, expand, select_lines
from tests.faults.conftest import Faults, faults, state
from tests.sessions import query, session

__all__ = ["faults", "state"]

COLUMNS = """
import json
import django
from django.conf import settings
settings.configure(INSTALLED_APPS=["django.contrib.postgres", "pulljobs"])
django.setup()
from django.apps import apps
every = [model._meta for model in apps.get_app_config("pulljobs").get_models()]
models = [meta for meta in every if meta.managed]
columns = {meta.db_table: [field.column for field in meta.concrete_fields] for meta in models}
import pulljobs
written = {table: list(filter(None, columns[table])) for table in columns}
print(json.dumps([pulljobs.__file__, written]))
"""
"""Program that prints the columns that the models of a release write, by table."""
OWN_TABLE = "publish_staged"
"""Statement that reads a table which each bulk publish makes for itself."""
THERE = "SELECT column_name FROM information_schema.columns WHERE table_name = %s"
NEEDED = " AND is_nullable = 'NO' AND column_default IS NULL AND is_identity = 'NO'"


@pytest.mark.slow
@pytest.mark.processes
def test_workers_and_publishers_of_both_releases_break_no_promise(
    faults: Faults, older: Path
) -> None:
    """Workers of both releases take each other's jobs while some are killed, and none is lost."""
    report = faults(
        *("--older", str(older), "--faults", "kill", "--times", "2", "--every", "0.8"),
        *("--jobs", "1000", "--seconds", "0.02", "--workers", "4", "--claimers", "0"),
        *("--lease", "1", "--keys", "20"),
    )
    assert (report["broken"], report["complaints"]) == ({}, [])
    assert (report["lost"], report["acknowledged"]) == (0, 1000)


@pytest.mark.django_db
def test_every_statement_of_the_older_release_runs_on_the_newer_tables(older: Path) -> None:
    """PostgreSQL can prepare each statement of the older release on the newer tables."""
    fragments = older / "pulljobs" / "engine" / "sql" / FRAGMENTS
    files = [
        file
        for file in sorted((older / "pulljobs").rglob("*.sql"))
        if file.stem != OWN_TABLE and file.parent != fragments
    ]
    assert len(files) > 20
    with session() as other:
        errors = {
            file.stem: _refused(other, select_lines(expand(file.read_text(), fragments), file.stem))
            for file in files
        }
    assert not {name: error for name, error in errors.items() if error}


def _refused(other: "psycopg.Connection[object]", text: str) -> str:
    names: dict[str, int] = {}
    numbered = re.sub(
        r"%\((\w+)\)s", lambda match: f"${names.setdefault(match[1], len(names) + 1)}", text
    )
    with other.transaction(force_rollback=True):
        done = other.pgconn.prepare(b"", numbered.replace("%%", "%").encode())
    return done.error_message.decode()


@pytest.mark.django_db
def test_rows_of_the_older_release_have_all_required_columns(older: Path) -> None:
    """All columns that the older release writes still exist, and no other column is required."""
    done = subprocess.run(
        [sys.executable, "-c", COLUMNS], cwd=older, capture_output=True, text=True, check=True
    )
    module, written = json.loads(done.stdout)
    assert Path(module).is_relative_to(older), "this is not the older release"
    for table, columns in written.items():
        there = {name for (name,) in query(THERE, [table])}
        assert there >= set(columns), table
        assert {name for (name,) in query(THERE + NEEDED, [table])} <= set(columns), table
