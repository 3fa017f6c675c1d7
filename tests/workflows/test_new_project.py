"""The workflow of the guide in a project that has nothing but what the guide says."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from django.core.management import call_command

from example_project.state import BASE_DIR
from tests import second
from tests.demo.running import own_database
from tests.guides import texts

pytestmark = [pytest.mark.slow, pytest.mark.processes]
PATIENCE_SECONDS: Final = 180
SETTINGS: Final = """
INSTALLED_APPS += ["django.contrib.postgres", "pulljobs", "pulljobs.workflows", "fulfilment"]
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "NAME"}}
"""
FALLBACK: Final = {"except WaitTimedOut:", 'approval = {"by": "timeout"}'}
"""Lines of the guide's workflow that an approved order does not reach."""


def make_project(folder: Path, database: str) -> None:
    """Make a project as a user does, with the files of the guide."""
    call_command("startproject", "shop", str(folder))
    (folder / "fulfilment").mkdir()
    call_command("startapp", "fulfilment", str(folder / "fulfilment"))
    with (folder / "shop" / "settings.py").open("a") as settings:
        settings.write(SETTINGS.replace('"NAME": "NAME"', f'"NAME": "{database}"'))
    for code in texts("docs/guides/workflows.md", "python"):
        name = code.partition("\n")[0].removeprefix("# ")
        (folder / name).write_text(code)


def test_an_order_is_booked_once_whatever_line_its_process_dies_at(tmp_path: Path) -> None:
    with own_database() as (_url, session):
        make_project(tmp_path, session.info.dbname)
        environment = {
            **os.environ,
            **second.NOT,
            "DJANGO_SETTINGS_MODULE": "shop.settings",
            "PYTHONPATH": os.pathsep.join([str(tmp_path), str(BASE_DIR)]),
            "PGHOST": session.info.host,
            "PGPORT": str(session.info.port),
            "PGUSER": session.info.user,
            "PGPASSWORD": session.info.password,
        }

        def run(*command: str) -> str:
            return subprocess.run(
                [sys.executable, *command],
                cwd=tmp_path,
                env=environment,
                check=True,
                timeout=PATIENCE_SECONDS,
                stdout=subprocess.PIPE,
                text=True,
            ).stdout

        run("manage.py", "migrate", "-v", "0")
        report = json.loads(run("-m", "tests.workflows.killed_lines"))
    source = (tmp_path / "fulfilment" / "pull_handlers.py").read_text().splitlines()
    spared = {source[line - 1].strip() for line in set(report["lines"]) - set(report["killed"])}
    assert spared == FALLBACK
    assert 0 in report["killed"]
    for order, result in report["results"].items():
        assert result["by"] == "olga", order
        assert report["booked"][order] == [result["booking"]], order
