"""Rollups after the demo, and the code and commands of the lake's guide, on real data."""

import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import duckdb
import pytest
from deltalake import DeltaTable
from django.core.management import call_command
from django.db import connection

from example_project.census import runs
from example_project.census.files import python_files
from example_project.state import BASE_DIR
from pulljobs import handlers
from pulljobs.lake.spark import tables
from pulljobs.testing import drain
from tests import second
from tests.demo.running import Project, own_database
from tests.guides import forget, modules_of, texts
from tests.lake.lakes import Place, setting_of
from tests.sessions import wait_for_other_transactions

FILES = 40
VERBS = (["export"], ["rollup"])
COMMAND = re.compile(r"^python manage\.py (pulljobs lake .+)$", re.MULTILINE)
ADMIN = """
import django
django.setup()
from django.contrib.auth.models import User
from django.test import Client
client = Client(headers={"host": "localhost"})
client.force_login(User.objects.create_superuser("looking"))
print(client.get("/admin/pulljobs_lake/rollup/?period__exact=day").content.decode())
"""
COUNTED = """
SELECT
    consumer.name,
    count(*) FILTER (WHERE state = 'DELIVERED'),
    count(*) FILTER (WHERE state = 'DEAD')
FROM pulljobs_archived_job
JOIN pulljobs_consumer AS consumer ON consumer.id = consumer_id
GROUP BY 1
ORDER BY 1
"""
ROLLED_UP = """
SELECT consumer.name, sum(delivered)::int, sum(dead)::int
FROM pulljobs_rollup
JOIN pulljobs_consumer AS consumer ON consumer.id = consumer_id
WHERE period = %s
GROUP BY 1
ORDER BY 1
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with ExitStack() as stack:
        url, session = stack.enter_context(own_database())
        made = Project(url, session, history=tmp_path / "history")
        stack.callback(made.end)
        yield made


def commands_of(page: str) -> list[list[str]]:
    return [shlex.split(line) for text in texts(page, "sh") for line in COMMAND.findall(text)]


@pytest.mark.django_db
@pytest.mark.slow
@pytest.mark.processes
def test_rollups_of_the_demo_equal_a_count_in_sql(project: Project, place: Place) -> None:
    """Rollups of the demo's jobs equal a count by SQL, and the admin shows the same rows."""
    demo = project.demo(f"--limit={FILES}")
    assert demo.end() == 0, demo.err
    environment = {
        **os.environ,
        "LAKE": setting_of(place),
        "DATABASE_URL": project.url,
        "DJANGO_SETTINGS_MODULE": "example_project.settings",
        **second.NOT,
    }

    def output_of(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=BASE_DIR,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    wait_for_other_transactions()
    outputs = [output_of("manage.py", "pulljobs", "lake", *verb) for verb in VERBS]
    assert f"{2 * FILES} of archive" in outputs[0]
    assert f"{2 * FILES} settlements = " in outputs[1]
    counted = project.query(COUNTED)
    assert sum(delivered + dead for _name, delivered, dead in counted) == 2 * FILES
    for period in ("hour", "day", "month"):
        assert project.query(ROLLED_UP, period) == counted
    page = output_of("-c", ADMIN)
    for field, column in (("delivered", 1), ("dead", 2)):
        shown = Counter(map(int, re.findall(rf'field-{field}">(\d+)<', page)))
        assert shown == Counter(row[column] for row in counted)


@pytest.mark.django_db(transaction=True)
def test_the_walk_of_the_guide(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every block of the guide runs, in its order."""
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")  # the guide's readers, of a local server
    handlers.sync_consumers()
    runs.begin(python_files(FILES))
    drain(delayed=True)
    try:
        code = modules_of("guides/lake.md")
        wait_for_other_transactions()
        for command in commands_of("docs/guides/lake.md"):
            call_command(*command)
        assert capsys.readouterr().out.count("All days are equal.") == 1
        _check_walk(code)
    finally:
        forget("walk")


def count_as_trino() -> list[tuple[str, str, int]]:
    """Return the rows of the query for Trino in the reference of the lake, run by DuckDB.

    Check that the table has a version of the Delta protocol that Trino reads.
    """
    [code] = texts("docs/reference/lake.md", "sql")
    archive = DeltaTable(f"{tables.location()}/archive")
    assert archive.protocol().min_reader_version == 1
    with duckdb.connect() as connection:
        connection.register("held", archive.to_pyarrow_dataset())
        connection.execute("ATTACH ':memory:' AS lake; CREATE SCHEMA lake.pulljobs")
        connection.execute("CREATE TABLE lake.pulljobs.archive AS SELECT * FROM held")
        return connection.execute(code.strip().splitlines()[-1]).fetchall()


def _check_walk(code: dict[str, ModuleType]) -> None:
    with connection.cursor() as cursor:
        [counting] = texts("docs/guides/lake.md", "sql")
        cursor.execute(counting)
        [(delivered, dead)] = cursor.fetchall()
    assert delivered + dead == FILES
    reading = code["walk.reading"]
    ways = (reading.count_with_duckdb(), reading.count_with_polars().rows(), count_as_trino())
    for rows in ways:
        outcomes = {(consumer, state): count for consumer, state, count in rows}
        assert outcomes["census", "DELIVERED"] == delivered
        assert outcomes.get(("census", "DEAD"), 0) == dead
    assert (reading.read_messages_with_pandas().payload_bytes > 0).all()
    days = reading.read_rollups_with_pandas()
    assert days[days.consumer__name == "census"].delivered.sum() == delivered
    charts = code["walk.charts"]
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    hours = charts.hours("census", today) + charts.hours("census", today - timedelta(days=1))
    assert sum(row[1] for row in hours) == delivered
    assert sum(jobs for _error, jobs in charts.worst_errors("census")) == dead
